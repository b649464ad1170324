"""Kernels that are compiled in the background: by threads that call a C++ compiler, by processes that call Triton."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch._inductor.async_compile import AsyncCompile
from torch._inductor.triton_bundler import TritonBundler

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
        self.compiler.wait(self.scope)


@contextmanager
def without_waiting(many: bool) -> Iterator[list[Kernels]]:
    """Inside, modules that Inductor makes in this thread do not wait for their kernels; these are in the list instead.

    Inductor compiles Triton kernels one by one in this process until its pool of processes runs, which takes seconds.
    With ``many`` regions they wait for the pool.
    """
    owner = threading.get_ident()
    found: list[Kernels] = []
    wait, uses_pool = AsyncCompile.wait, AsyncCompile.use_process_pool

    def note(self: AsyncCompile, scope: dict[str, Any]) -> None:
        if threading.get_ident() == owner:
            found.append(Kernels(self, scope))
        else:
            wait(self, scope)

    def uses_pool_that_starts(cls: type[AsyncCompile]) -> bool:
        runs: bool = uses_pool()
        return runs or (many and threading.get_ident() == owner and cls._ready_future is not None)

    with _lock:
        patched = {"wait": note, "use_process_pool": classmethod(uses_pool_that_starts)}
        original = {name: AsyncCompile.__dict__[name] for name in patched}
        try:
            for name, function in patched.items():
                setattr(AsyncCompile, name, function)
            yield found
        finally:
            for name, function in original.items():
                setattr(AsyncCompile, name, function)


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
