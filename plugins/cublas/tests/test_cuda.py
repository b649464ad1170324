"""The library on a GPU: against eager PyTorch, in training, in CUDA graphs, on streams and in threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.testing import executor_suite
from thunder_plugin_cublas import library, plans, selection

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
EVERYTHING = {"cublas": {"least_operations": 0}}

if torch.cuda.is_available():
    from product_samples import SAMPLES

    test_conformance = executor_suite(
        "cublas", options={"least_operations": 0}, devices=("cuda",), samples=SAMPLES, limit=8
    )


def matrix(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def assert_as_exact(found: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    """The error from float64 is at most twice eager's own."""
    error, usual = (float((one.double() - exact).norm() / exact.norm()) for one in (found, eager))
    assert error <= 2 * usual + 1e-6, (error, usual)
    assert (found.stride(), found.dtype) == (eager.stride(), eager.dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_training_of_linear_layers(dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(512, 768, bias=bias), nn.GELU(), nn.Linear(768, 256, bias=bias)).cuda().to(dtype)
    x, cotangent = matrix(4, 96, 512, dtype=dtype).requires_grad_(), matrix(4, 96, 256, dtype=dtype)
    compiled = thunder.jit(layers, executors=[EVERYTHING])
    wanted = [x, *layers.parameters()]
    outputs = [compiled(x), layers(x)]
    found, eager = [[out, *torch.autograd.grad(out, wanted, cotangent)] for out in outputs]
    wide = nn.Sequential(*layers).double()
    x64 = x.detach().double().requires_grad_()
    out = wide(x64)
    exact = [out, *torch.autograd.grad(out, [x64, *wide.parameters()], cotangent.double())]
    for one, own, best in zip(found, eager, exact, strict=True):
        assert_as_exact(one, own, best)
    products = [line for line in thunder.last_traces(compiled)[-1].symbols if line.symbol.executor == "cublas"]
    backward = [line for line in thunder.last_backward_traces(compiled)[-1].symbols if line.symbol.executor == "cublas"]
    assert (len(products), len(backward)) == (2, 4)


def test_every_algorithm_is_right() -> None:
    a, b, start = matrix(384, 1024), matrix(640, 1024).t(), matrix(384, 640)
    exact, eager = start.double() + a.double() @ b.double(), torch.addmm(start, a, b)
    result = torch.empty(384, 640, device="cuda", dtype=torch.bfloat16)
    product = plans.product_of(a, b, start, None, result)
    lt = library.library()
    described = lt.describe(product)
    algorithms = lt.algorithms(product, described, 64)
    assert len(algorithms) > 1
    for algorithm in algorithms:
        plans.run(described, algorithm, (a, b, start, None), result.fill_(float("nan")))
        assert_as_exact(result, eager, exact)


def test_timed_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = matrix(512, 256), matrix(256, 512)
    plans.PLANS.clear()
    plans.multiplied(a, b, None, None, 8)
    (chosen,) = [plan.algorithm for plan in plans.PLANS.values()]
    plans.PLANS.clear()

    def no_times(*_: Any) -> list[float]:
        raise AssertionError("timed again")

    monkeypatch.setattr(selection, "milliseconds", no_times)
    plans.multiplied(a, b, None, None, 8)
    assert [plan.algorithm for plan in plans.PLANS.values()] == [chosen]


def test_in_a_cuda_graph() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda().bfloat16()
    compiled = thunder.jit(layers, executors=[EVERYTHING], transforms=["cudagraphs"])
    for _ in range(5):
        x = matrix(128, 256)
        found, eager = compiled(x), layers(x)
        torch.testing.assert_close(found, eager)


def test_captured_before_it_was_timed() -> None:
    a, b = matrix(256, 384), matrix(384, 128)
    plans.multiplied(matrix(64, 64), matrix(64, 64), None, None, 1)  # a handle is made outside of captures
    graph = torch.cuda.CUDAGraph()
    plans.PLANS.clear()
    with torch.cuda.graph(graph):
        captured = plans.multiplied(a, b, None, None, 8)
    graph.replay()
    torch.testing.assert_close(captured, a @ b)
    assert not plans.PLANS


def test_on_another_stream() -> None:
    stream = torch.cuda.Stream()
    a, b = matrix(1024, 1024), matrix(1024, 1024)
    compiled = thunder.jit(torch.matmul, executors=["cublas"])
    with torch.cuda.stream(stream):
        for _ in range(3):
            found = compiled(a, b)
    stream.synchronize()
    torch.testing.assert_close(found, a @ b)


def test_threads_with_biases_of_their_own() -> None:
    weight, x = matrix(256, 256), matrix(128, 256)
    biases = [matrix(256) for _ in range(4)]
    compiled = thunder.jit(F.linear, executors=[EVERYTHING])
    compiled(x, weight, biases[0])
    wrong: list[float] = []

    def work(bias: torch.Tensor) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                wrong.append(float((compiled(x, weight, bias) - F.linear(x, weight, bias)).abs().max()))

    threads = [threading.Thread(target=work, args=(bias,)) for bias in biases]
    torch.cuda.synchronize()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 200
    assert max(wrong) <= 0.25


def test_tensors_that_begin_anywhere() -> None:
    """Addresses that are multiples of two bytes only; PyTorch takes other algorithms for them, and so must this."""
    rows, columns, inner = 96, 64, 80
    memory = matrix(3, rows * inner + 7)
    a = memory[0, 1 : 1 + rows * inner].view(rows, inner)
    b = memory[1, 3 : 3 + inner * columns].view(inner, columns)
    compiled = thunder.jit(torch.matmul, executors=[EVERYTHING])
    for one, other in ((a, b), (a.clone(), b), (a, b.clone())):
        torch.testing.assert_close(compiled(one, other), one @ other)
    assert thunder.cache_misses(compiled) >= 1
