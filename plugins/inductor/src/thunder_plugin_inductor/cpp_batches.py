"""Compilation of several C++ kernels at a time.

Starting the compiler, reading PyTorch's precompiled headers, and linking take longer than compiling a kernel: 0.8 s of
1 s on one core. So an idle compiler takes all waiting kernels as one file; each kernel has a separate namespace and
Python module. The nine regions of a small Llama, forward and backward, take 5.7 s of CPU time instead of 13.5 s.
"""

from __future__ import annotations

import contextvars
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from thunder_plugin_inductor.pytorch_internals import ENTRY, CppPythonBindingsCodeCache

_WORTH_A_COMPILER: Final = 20_000
"""Characters of source for which another compiler is started. Compiling them takes 0.3 s, starting a compiler 0.6 s."""
_DECLARATION: Final = re.compile(rf'extern "C"\s+void\s+{ENTRY}\(')
_INCLUDE: Final = re.compile(r"^\s*#include .*$", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^\s*#\s*(?!pragma)\w+", re.MULTILINE)
_PYTHON: Final = (
    "#define PY_SSIZE_T_CLEAN\n#include <Python.h>\n#include <sstream>\n#include <cstdlib>\n#include <cerrno>"
)


class Kernel:
    """A kernel that is being compiled, in place of its function."""

    def __init__(self, argument_types: Sequence[str], source: str) -> None:
        self.argument_types = argument_types
        self.source = source
        self.done = threading.Event()
        self.function: Callable[..., Any] | None = None
        self.error: BaseException | None = None

    def result(self) -> Callable[..., Any]:
        """Wait for the function. Raises the compiler's error."""
        self.done.wait()
        if self.error is not None:
            raise self.error
        assert self.function is not None
        return self.function


@dataclass
class Batches:
    """Compilers that take waiting kernels.

    Attributes:
        most: largest number of compilers at a time.
        later: number of compilers that do not run yet, because kernels are still being generated. One runs in any case.
        first: a future to wait for, whether it succeeds or not.
    """

    most: int
    later: int = 0
    first: Sequence[Future[Any]] = ()
    _waiting: list[Kernel] = field(default_factory=list)
    _running: int = 0
    _compiling: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, argument_types: Sequence[str], source: str) -> Kernel:
        """A kernel that is compiled when a compiler is idle."""
        kernel = Kernel(argument_types, source)
        with self._lock:
            self._waiting.append(kernel)
            self._start()
        return kernel

    def allow_all(self) -> None:
        """Allow the largest number of compilers from now on."""
        with self._lock:
            self.later = 0
            self._start()

    def _start(self) -> None:
        """Start another compiler if kernels are waiting and the number allows it."""
        if self._waiting and self._running < max(1, self.most - self.later):
            self._running += 1
            run = contextvars.copy_context().run  # Inductor's settings are those of the calling thread
            threading.Thread(target=run, args=(self._compile,), daemon=True).start()

    def _compile(self) -> None:
        wait(self.first)
        while kernels := self._taken():
            try:
                _compile_together(kernels)
            except Exception:  # noqa: BLE001 - one of them may be the reason; each reports its own error
                for kernel in kernels:
                    _compile_alone(kernel)
            for kernel in kernels:
                kernel.done.set()
            with self._lock:
                self._compiling -= 1

    def _taken(self) -> list[Kernel]:
        """The next batch of waiting kernels, divided evenly among idle compilers; an empty batch ends the compiler."""
        with self._lock:
            count = _share([len(kernel.source) for kernel in self._waiting], self.most - self._compiling)
            kernels, self._waiting = self._waiting[:count], self._waiting[count:]
            if kernels:
                self._compiling += 1
                self._start()
            else:
                self._running -= 1
        return kernels


def _share(lengths: Sequence[int], compilers: int) -> int:
    """The number of kernels for one compiler, by the lengths of their sources."""
    share = max(sum(lengths) / max(1, compilers), _WORTH_A_COMPILER)
    sums = list(accumulate(lengths, initial=0))
    return sum(before < share for before in sums[:-1])


class _Library(CppPythonBindingsCodeCache):
    """Loads a library of several kernels, with a module for each."""

    cache: dict[str, Any] = {}  # noqa: RUF012 - Inductor's, by the key of the file
    entries: tuple[str, ...] = ()

    @classmethod
    def _load_library_inner(cls, path: str, key: str) -> Any:
        return _Modules([load_entry(path, key, entry) for entry in cls.entries])


@dataclass
class _Modules:
    modules: list[Any]
    key: str = ""  # set by Inductor


def load_entry(path: str, key: str, entry: str) -> Any:
    """The module with the function ``entry`` of a shared library; ``key`` identifies the library."""
    loader: Any = type("Entry", (CppPythonBindingsCodeCache,), {"entry_function": entry})
    return loader._load_library_inner(path, key)


def _compile_together(kernels: Sequence[Kernel]) -> None:
    if len(kernels) == 1 or not all(_can_be_joined(kernel.source) for kernel in kernels):
        for kernel in kernels:
            _compile_alone(kernel)
        return
    entries = tuple([f"{ENTRY}_{number}" for number in range(len(kernels))])
    includes = dict.fromkeys(line for kernel in kernels for line in _INCLUDE.findall(kernel.source))
    parts = [_namespace(kernel, entry) for kernel, entry in zip(kernels, entries, strict=True)]
    library: Any = type("Library", (_Library,), {"entries": entries})
    loaded = library.load_async("\n".join([*includes, _PYTHON, *parts]))()
    for kernel, entry, module in zip(kernels, entries, loaded.modules, strict=True):
        kernel.function = getattr(module, entry)


def _compile_alone(kernel: Kernel) -> None:
    try:
        kernel.function = CppPythonBindingsCodeCache.load_pybinding(kernel.argument_types, kernel.source)
    except Exception as error:  # noqa: BLE001 - raised where the kernel is waited for
        kernel.error = error


def _can_be_joined(source: str) -> bool:
    """Whether a source consists of includes and one function, as all sources that Inductor generates."""
    return len(_DECLARATION.findall(source)) == 1 and not _DIRECTIVE.search(_INCLUDE.sub("", source))


def _namespace(kernel: Kernel, entry: str) -> str:
    """The kernel in a namespace, with a renamed entry point and Python binding."""
    body = _DECLARATION.sub(f'extern "C" void {entry}(', _INCLUDE.sub("", kernel.source))
    arguments = [
        f"parse_arg<{kind.replace('const ', '')}>(args, {number})" for number, kind in enumerate(kernel.argument_types)
    ]
    binding = CppPythonBindingsCodeCache.suffix_template.format(
        arg_len=len(arguments),
        call_entry_func=f"{entry}({', '.join(arguments)}); Py_RETURN_NONE;",
        entry_func=entry,
        extra_parse_arg=CppPythonBindingsCodeCache.extra_parse_arg.format(array_len=-1),
    )
    return f"namespace {entry}_of_batch {{\n{body}\n{binding}\n}}"
