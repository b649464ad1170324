"""Thunder's core: traces, passes, executors, guards and the runtime.

A package imports only packages below it in this list (``lint-imports`` checks the order in ``pyproject.toml``):

- `runtime`: calls, their cache entries, and the steps of a compilation.
- `settings`, `recording`, `contract`: how a program is compiled; recording of functions of tensors, for front ends that
  run no Python program; and the interface between the runtime and front ends.
- `plugins`: discovery and loading of packages.
- `autodiff`: the joint trace, its partition into forward and backward, derivatives of ops.
- `passes`: transformations of traces.
- `executors`: the interface of what runs ops.
- `checks`: guards and prologues.
- `tracing`: calls on fake tensors.
- `symbols`: the tables of operations.
- `ir`: proxies, symbols and traces.
- `pytorch_errata`: bugs of PyTorch that Thunder works around. A test fails when the installed version lacks one.
- `pytorch_internals`: the private names of PyTorch that Thunder uses or replaces; other files import them from here. A
  name that the installed PyTorch lacks is a placeholder that raises when it is used (`private_names`).
- `private_folder`: folders and files that no other user can change. Caches on disk are read through it.
- `errors`, `forking`, `progress`: exceptions; the state of forked processes; events of a compilation for listeners.

The core imports no front end, no plugin, and nothing of the package `thunder`.
"""

from typing import Final

PACKAGES: Final = ("thunder", "thunder_core", "thunder_frontend")
"""The packages of the distribution."""
