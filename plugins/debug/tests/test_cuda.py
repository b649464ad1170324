"""On a GPU: times by events, NVTX ranges, and comparisons of what runs there. Skipped without one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.executors import Claim, Executor, OperatorExecutor
from thunder_plugin_debug import Bisect, DivergenceError, LineTiming, NanFinder, NonFiniteError, NvtxRanges
from thunder_testing import Comparison, assert_same_behaviour

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")


def products(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    for _ in range(4):
        y = y @ x
    return y.sum()


@pytest.mark.skipif(os.environ.get("CUDA_LAUNCH_BLOCKING") == "1", reason="CUDA_LAUNCH_BLOCKING: launches wait")
def test_times_by_events() -> None:
    timing = LineTiming()
    compiled = thunder.jit(products, executors=[], transforms=[timing])
    x = torch.randn(8192, 8192, device="cuda") / 100
    for _ in range(3):
        compiled(x)
    timing.reset()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(3):
        compiled(x)
    launched = time.perf_counter() - start
    assert not torch.cuda.current_stream().query()  # nothing waited for the device
    torch.cuda.synchronize()
    wall = time.perf_counter() - start
    product = timing.records[0]
    assert (product.operation, product.clock, product.calls) == ("torch.matmul", "cuda:0", 12)
    assert launched < 0.5 * product.total
    assert 0.8 * wall < sum(record.total for record in timing.records) <= wall


def test_many_calls_are_all_counted() -> None:
    """Events are read while the program goes on, and used again."""
    timing = LineTiming()
    compiled = thunder.jit(lambda x: torch.sin(x), executors=[], transforms=[timing])
    x = torch.randn(16, device="cuda")
    for _ in range(1000):
        compiled(x)
    (record,) = timing.records
    assert record.calls == 1000
    assert 0 < record.mean < 1e-3


def test_lines_on_the_cpu() -> None:
    timing = LineTiming()
    thunder.jit(lambda x, y: (torch.sin(x), torch.cos(y)), executors=[], transforms=[timing])(
        torch.ones(2), torch.ones(2, device="cuda")
    )
    assert {record.operation: record.clock for record in timing.records} == {"torch.sin": "cpu", "torch.cos": "cuda:0"}


def test_captured_calls_are_not_measured() -> None:
    timing = LineTiming()
    compiled = thunder.jit(lambda x: torch.sin(x) * 2, executors=[], transforms=[timing])
    x = torch.ones(4, device="cuda")
    compiled(x)
    timing.reset()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(x)
    x.fill_(2.0)
    graph.replay()
    torch.testing.assert_close(result, torch.sin(x) * 2)
    assert timing.records == ()


def test_nvtx_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    open_now: list[str] = []
    seen: list[str] = []
    push, pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop

    def pushed(text: str) -> Any:
        open_now.append(text)
        seen.append(text)
        return push(text)

    def popped() -> Any:
        open_now.pop()
        return pop()

    monkeypatch.setattr(torch.cuda.nvtx, "range_push", pushed)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", popped)
    compiled = thunder.jit(lambda x: torch.relu(x).sum(), executors=[], transforms=[NvtxRanges(exclude=("torch.sum",))])
    compiled(torch.ones(3, device="cuda", requires_grad=True)).backward()
    assert open_now == []
    assert seen[0].startswith("torch.relu [reference] ")
    assert "test_cuda.py:" in seen[0]
    assert len(seen) > 1  # backward
    seen.clear()
    failing = OperatorExecutor("failing", (Claim(torch.relu, run=lambda x: x.no_such_method()),))
    compiled = thunder.jit(lambda x: torch.relu(x), executors=[failing], transforms=[NvtxRanges()])
    with pytest.raises(AttributeError, match="no_such_method"):
        compiled(torch.ones(3, device="cuda"))
    assert (len(seen), open_now) == (1, [])


def test_nvtx_ranges_by_name() -> None:
    compiled = thunder.jit(lambda x: torch.relu(x), executors=[], transforms=["nvtx_ranges"])
    assert compiled(torch.ones(3, device="cuda")).sum() == 3
    assert "nvtx_ranges_torch_relu" in str(thunder.last_traces(compiled)[-1])


def test_wrong_kernel(wrong_gelu: Executor, wrong_silu: Executor) -> None:
    bisect = Bisect(action="record")
    compiled = thunder.jit(lambda x: F.silu(F.gelu(x)).sum(), executors=[wrong_gelu, wrong_silu], transforms=[bisect])
    compiled(torch.randn(64, device="cuda", requires_grad=True)).backward()
    assert [(found.executor, found.line.phase) for found in bisect.divergences] == [
        ("wrong_gelu", "forward"),
        ("wrong_silu", "backward"),
    ]


def test_random_lines() -> None:
    """The generator of the device is put back as well."""
    same = OperatorExecutor("same", (Claim(torch.rand_like, run=lambda x: torch.rand_like(x)),))
    x = torch.zeros(8, device="cuda")
    results = []
    for transforms in ([], [Bisect()]):
        compiled = thunder.jit(
            lambda x: torch.rand_like(x) + torch.rand_like(x), executors=[same], transforms=transforms
        )
        torch.manual_seed(1)
        results.append((compiled(x), torch.cuda.get_rng_state()))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def test_another_device_is_a_difference() -> None:
    cpu = OperatorExecutor("cpu", (Claim(F.gelu, run=lambda x: F.gelu(x.cpu())),))
    compiled = thunder.jit(lambda x: F.gelu(x), executors=[cpu], transforms=[Bisect()])
    with pytest.raises(DivergenceError, match="has device cpu instead of cuda:0"):
        compiled(torch.randn(3, device="cuda"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_nan(dtype: torch.dtype) -> None:
    def quotient(x: torch.Tensor) -> torch.Tensor:
        return (x / (x - x)).to(dtype)

    with pytest.raises(NonFiniteError) as raised:
        thunder.jit(quotient, executors=[], transforms=[NanFinder()])(torch.zeros(3, device="cuda"))
    assert raised.value.finding.line.operation == "torch.div"


def test_training(network: nn.Module, right_silu: Executor, fusion: Callable[..., Executor]) -> None:
    transforms = [Bisect(), NanFinder(inf=True), LineTiming(), NvtxRanges()]
    assert_same_behaviour(
        network.cuda(),
        lambda: (torch.randn(6, 4, device="cuda", requires_grad=True),),
        lambda module: thunder.jit(module, executors=[right_silu, fusion()], transforms=transforms),
        comparison=Comparison(rtol=1e-5, atol=1e-6),
        cache_hits=thunder.cache_hits,
    )
