"""Compilation of kernels in the background: C++ in threads that call the compiler, Triton in processes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from thunder_core.forking import renew_in_child
from thunder_plugin_inductor.caught_errors import with_caught_errors
from thunder_plugin_inductor.cpp_batches import Batches, Kernel
from thunder_plugin_inductor.preparation import Preparation
from thunder_plugin_inductor.pytorch_internals import AsyncCompile, TritonBundler, get_compile_threads

_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_lock")


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of one module that Inductor generated.

    Attributes:
        scope: the namespace of the module, in which kernels are futures until they are waited for.
    """

    compiler: AsyncCompile
    scope: dict[str, Any]

    def wait(self) -> None:
        """Wait until all are compiled. Raises the compiler's error."""
        for name, value in self.scope.items():
            if isinstance(value, Kernel):
                self.scope[name] = value.result()
        self.compiler.wait(self.scope)


@contextmanager
def without_waiting(prepared: Preparation | None) -> Iterator[list[Kernels]]:
    """A context in which modules that Inductor generates in this thread add their kernels to the list without waiting.

    C++ kernels are compiled in batches, with one core less than Inductor would use while this thread works, and with
    all of them afterwards. They wait for what is ``prepared``. Triton kernels are compiled by a pool of processes if it
    is running, and otherwise one by one in this process, as in Inductor. For the 11 regions of TinyLlama on an H200,
    waiting until the processes have imported PyTorch takes twice as long.
    """
    owner = threading.get_ident()
    kernels_: list[Kernels] = []
    wait, alone = AsyncCompile.wait, AsyncCompile.cpp_pybinding
    batches = Batches(get_compile_threads(), later=1, first=() if prepared is None else (prepared.headers,))

    def note(self: AsyncCompile, scope: dict[str, Any]) -> None:
        if threading.get_ident() == owner:
            kernels_.append(Kernels(self, scope))
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
        yield kernels_
        batches.allow_all()


@contextmanager
def bundled() -> Iterator[list[Any]]:
    """A context that collects the bundles of the Triton kernels compiled in it; the list is filled at the end."""
    bundles: list[Any] = []
    TritonBundler.begin_compile()
    try:
        yield bundles
        bundle, _ = TritonBundler.collect()
        if bundle.kernel_artifacts or bundle.static_autotuners:
            bundles.append(bundle)
    finally:
        TritonBundler.end_compile()
