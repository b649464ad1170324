"""Kernels that are compiled in the background: by threads that call a C++ compiler, by processes that call Triton."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from thunder_plugin_inductor.caught_errors import with_caught_errors
from thunder_plugin_inductor.cpp_batches import Batches, Kernel
from thunder_plugin_inductor.preparation import Preparation
from thunder_plugin_inductor.pytorch_internals import AsyncCompile, TritonBundler, get_compile_threads

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Kernels:
    """Those of one module that Inductor wrote.

    Attributes:
        scope: the module's names; kernels are there as futures, until somebody waits for them.
    """

    compiler: AsyncCompile
    scope: dict[str, Any]

    def wait(self) -> None:
        """Until all are compiled. Raises what the compiler raises."""
        for name, value in self.scope.items():
            if isinstance(value, Kernel):
                self.scope[name] = value.result()
        self.compiler.wait(self.scope)


@contextmanager
def without_waiting(prepared: Preparation | None) -> Iterator[list[Kernels]]:
    """Inside, modules that Inductor makes in this thread do not wait for their kernels; these are in the list instead.

    C++ kernels are compiled in batches, beside this thread: on one core less than Inductor would take, and on all of
    them once this thread is done. They wait for what is ``prepared``.
    Triton kernels are compiled by a pool of processes if it runs already, and otherwise one by one in this process: as
    Inductor does it. Measured on an H200 with the 11 regions of TinyLlama, to wait until the processes have imported
    PyTorch takes twice as long as that.
    """
    owner = threading.get_ident()
    found: list[Kernels] = []
    wait, alone = AsyncCompile.wait, AsyncCompile.cpp_pybinding
    batches = Batches(get_compile_threads(), later=1, first=() if prepared is None else (prepared.headers,))

    def note(self: AsyncCompile, scope: dict[str, Any]) -> None:
        if threading.get_ident() == owner:
            found.append(Kernels(self, scope))
        else:
            wait(self, scope)

    def cpp_pybinding(self: AsyncCompile, argument_types: list[str], source: str) -> Any:
        source = with_caught_errors(source)
        if threading.get_ident() == owner:
            return batches.add(argument_types, source)
        return alone(self, argument_types, source)

    with (
        _lock,
        mock.patch.object(AsyncCompile, "wait", note),
        mock.patch.object(AsyncCompile, "cpp_pybinding", cpp_pybinding),
    ):
        yield found
        batches.allow_all()


@contextmanager
def bundled() -> Iterator[list[Any]]:
    """Bundles of the Triton kernels whose compilation ends inside; the list is filled at the end."""
    found: list[Any] = []
    TritonBundler.begin_compile()
    try:
        yield found
        bundle, _ = TritonBundler.collect()
        if bundle.kernel_artifacts or bundle.static_autotuners:
            found.append(bundle)
    finally:
        TritonBundler.end_compile()
