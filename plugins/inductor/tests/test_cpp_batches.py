"""C++ kernels of several regions, compiled as one file."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
import torch

import thunder
from thunder_fusion import compiled_regions
from thunder_plugin_inductor import cpp_batches
from thunder_plugin_inductor.cpp_batches import Batches

pytestmark = pytest.mark.needs_compiler

SOURCE = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(const float* in, float* out) {{ for (int i = 0; i < 4; i++) out[i] = in[i] {operation}; }}
"""


class Waiting(Batches):
    """Waits for a signal, so that all kernels wait for the same compiler."""

    def _start(self) -> None:
        """Nothing starts by itself."""

    def start(self) -> None:
        self._running = 1
        self._compile()


def kernels(*operations: str) -> list[Any]:
    batches = Waiting(most=1)
    found = [batches.add(["const float*", "float*"], SOURCE.format(operation=operation)) for operation in operations]
    batches.start()
    return found


@pytest.mark.slow
def test_each_kernel_is_its_own() -> None:
    for kernel, factor in zip(kernels("* 2 + 0.125f", "* 3 + 0.125f"), (2, 3), strict=True):
        function, result = kernel.result(), torch.empty(4)
        assert function.__self__.__name__.split(".")[-1] == f"kernel_{factor - 2}"
        function(torch.arange(4.0), result)
        torch.testing.assert_close(result, torch.arange(4.0) * factor + 0.125)


@pytest.mark.slow
def test_an_error_is_that_of_its_kernel() -> None:
    good, bad = kernels("* 2 + 0.25f", "* no_such_name")
    result = torch.empty(4)
    good.result()(torch.arange(4.0), result)
    torch.testing.assert_close(result, torch.arange(4.0) * 2 + 0.25)
    with pytest.raises(Exception, match="no_such_name"):
        bad.result()


@pytest.mark.slow
def test_regions_come_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six regions, one compiler: those that come while it runs wait for it and are compiled together."""
    monkeypatch.setenv("THUNDER_CACHE_DIR", "")
    sizes: list[int] = []
    added: list[cpp_batches.Kernel] = []
    all_there = threading.Event()
    together, add = cpp_batches._compile_together, cpp_batches.Batches.add

    def compile(kernels: list[cpp_batches.Kernel]) -> None:
        sizes.append(len(kernels))
        assert all_there.wait(60)
        together(kernels)

    def added_to(batches: cpp_batches.Batches, *kernel: Any) -> cpp_batches.Kernel:
        added.append(add(batches, *kernel))
        if len(added) == 6:
            all_there.set()
        return added[-1]

    monkeypatch.setattr(cpp_batches, "_compile_together", compile)
    monkeypatch.setattr(cpp_batches.Batches, "add", added_to)
    monkeypatch.setattr("thunder_plugin_inductor.kernels.get_compile_threads", lambda: 1)
    compiled_regions._cache.clear()

    def function(x: torch.Tensor) -> torch.Tensor:
        for number in range(6):
            x = torch.tanh(x @ x) * (1 + number / 16) + number
        return x

    x = torch.rand(4, 4) / 8
    torch.testing.assert_close(thunder.jit(function, executors=["inductor"])(x), function(x))
    assert sizes == [1, 5]


def test_shares_are_alike_and_not_small() -> None:
    share = cpp_batches._share
    assert share([], 2) == 0
    assert share([30_000], 4) == 1
    assert share([9_000, 9_000, 9_000, 9_000], 1) == 4
    assert share([30_000, 10_000, 10_000, 10_000], 2) == 1  # by length
    assert share([1_000] * 15, 2) == 15  # less than a compiler is worth
    assert share([9_000] * 8, 2) == 4


def test_compilers_wait_and_then_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that come before the headers are compiled together afterwards, by as many compilers as may run."""
    sizes: list[int] = []
    both = threading.Barrier(2)

    def compile(kernels: list[cpp_batches.Kernel]) -> None:
        sizes.append(len(kernels))
        both.wait(60)

    monkeypatch.setattr(cpp_batches, "_compile_together", compile)
    headers: Future[None] = Future()
    batches = Batches(most=2, later=1, first=(headers,))
    added = [batches.add([], "x" * 20_000) for _ in range(4)]
    batches.allow_all()
    assert not sizes
    headers.set_exception(RuntimeError("they cannot be made"))
    assert all(kernel.done.wait(60) for kernel in added)
    assert sizes == [2, 2]
