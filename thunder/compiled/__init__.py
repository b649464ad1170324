"""Compiled functions and modules: what `thunder.jit` returns.

For a function it returns a `ThunderFunction`. For a module it returns an instance of a subclass of `ThunderModule` and
of the module's class (`module_class`), which shares the ``__dict__`` of the module; its ``forward`` is the compiled
program (`module_forward`). Both have a `Compiled` (`function`), a program with its cache.
"""
