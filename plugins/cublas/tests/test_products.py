"""Products through the public interface on a CPU, with the fake in the library's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fake_cublaslt import FakeLibrary, installed
from torch import nn

import thunder
from thunder_core.errors import ExecutorError
from thunder_plugin_cublas import plans, selection
from thunder_plugin_cublas.executor import CublasExecutor
from thunder_plugin_cublas.options import CublasOptions


def executor(**options: Any) -> CublasExecutor:
    return CublasExecutor(CublasOptions(**{"least_operations": 0, **options}), device="cpu")


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).bfloat16()


def claimed(trace: Any) -> list[str]:
    return [line.symbol.name for line in trace.symbols if line.symbol.executor == "cublas"]


def test_a_training_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 8, bias=False)).bfloat16()
    x = half(2, 6, 16).requires_grad_()
    compiled = thunder.jit(model, executors=[executor()])
    wanted, cotangent = [x, *model.parameters()], half(2, 6, 8)
    outputs = compiled(x), model(x)
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad(output, wanted, cotangent) for output in outputs]
    torch.testing.assert_close(*gradients)
    assert claimed(thunder.last_traces(compiled)[-1]) == ["thunder_plugin_cublas.products.linear"] * 2
    # two gradients of weights, and that of the input of each layer
    assert len(claimed(thunder.last_backward_traces(compiled)[-1])) == 4


def test_gradients_are_accumulated() -> None:
    """What gate and up give to their input's gradient is summed by the second product."""

    def program(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        x = x * 2
        return F.silu(F.linear(x, gate)) * F.linear(x, up)

    torch.manual_seed(0)
    tensors = [half(6, 16).requires_grad_(), half(8, 16).requires_grad_(), half(8, 16).requires_grad_()]
    compiled = thunder.jit(program, executors=[executor()], transforms=["accumulate_products"])
    wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
    found = torch.autograd.grad(compiled(*tensors).float().sum(), tensors)
    eager = torch.autograd.grad(program(*tensors).float().sum(), tensors)
    exact = torch.autograd.grad(program(*wide).sum(), wide)
    for one, own, best in zip(found, eager, exact, strict=True):
        assert (one.double() - best).norm() <= 2 * (own.double() - best).norm()
    assert "thunder_plugin_cublas.products.addmm" in claimed(thunder.last_backward_traces(compiled)[-1])


def test_the_fastest_is_taken_and_kept() -> None:
    a, b = half(4, 8), half(8, 6)
    for launched in ([0, 1, 2, 1, 1], [1, 1]):  # three are timed once, in the first process only
        with installed() as fake:
            for _ in range(2):
                torch.testing.assert_close(plans.multiplied(a, b, None, None, 8), a @ b)
            assert fake.launched == launched


@pytest.mark.parametrize(("options", "proposed"), [({"candidates": 1}, 3), ({}, 1)])
def test_one_algorithm_is_not_timed(options: dict[str, Any], proposed: int) -> None:
    with installed(FakeLibrary(proposed)) as fake:
        a, b = half(4, 8), half(8, 6)
        compiled = thunder.jit(torch.mm, executors=[executor(**options)])
        torch.testing.assert_close(compiled(a, b), a @ b)
        assert fake.launched == [0]


def test_while_a_graph_is_captured_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = half(4, 8), half(8, 6)
    with installed() as fake:
        with monkeypatch.context() as patched:
            patched.setattr(selection, "must_not_time", lambda device: True)
            plans.multiplied(a, b, None, None, 8)
        plans.multiplied(a, b, None, None, 8)
        assert fake.launched == [0, 0, 1, 2, 1]


def test_no_algorithm() -> None:
    with installed(FakeLibrary(0)), pytest.raises(ExecutorError, match="has no algorithm for Product") as raised:
        plans.multiplied(half(4, 8), half(8, 6), None, None, 8)
    assert "exclude" in str(raised.value)


def test_what_the_library_refuses() -> None:
    with installed() as fake:
        fake.cublasLtMatmul.function = lambda *arguments: 15
        with pytest.raises(ExecutorError, match="cublasLtMatmul answered CUBLAS_STATUS_NOT_SUPPORTED"):
            plans.multiplied(half(4, 8), half(8, 6), None, None, 8)


DECLINED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "float16 and bfloat16 are implemented": (torch.mm, (torch.randn(4, 8), torch.randn(8, 6)), {}),
    "a factor is a vector, or empty": (torch.mm, (half(1, 8), half(8, 6)), {}),
    "fewer than 1000 operations": (torch.mm, (half(4, 8), half(8, 6)), {"least_operations": 1000}),
    "not a product with one matrix on the right": (torch.matmul, (half(2, 4, 8), half(2, 8, 6)), {}),
    "neither rows nor columns have adjacent": (torch.mm, (half(4, 16)[:, ::2], half(8, 6)), {}),
    "of the left factor": (torch.matmul, (half(3, 2, 8).transpose(0, 1), half(8, 6)), {}),
    "not a matrix": (F.linear, (half(4, 8), half(8)), {}),
    "the bias is not contiguous": (F.linear, (half(4, 8), half(6, 8), half(12)[::2]), {}),
    "a summand of the shape [1, 6]": (torch.addmm, (half(1, 6), half(4, 8), half(8, 6)), {}),
    "of the summand": (torch.addmm, (half(6, 4).t(), half(4, 8), half(8, 6)), {}),
}


@pytest.mark.parametrize("reason", DECLINED)
def test_what_is_left_to_others(reason: str) -> None:
    function, arguments, options = DECLINED[reason]
    compiled = thunder.jit(function, executors=[executor(**options)])
    torch.testing.assert_close(compiled(*arguments), function(*arguments))
    assert reason in str(thunder.explain(compiled).decisions)
    assert not claimed(thunder.last_traces(compiled)[-1])


def test_sums_with_factors_are_left_to_others() -> None:
    start, a, b = half(4, 6), half(4, 8), half(8, 6)
    compiled = thunder.jit(lambda *tensors: torch.addmm(*tensors, beta=0.5), executors=[executor()])
    torch.testing.assert_close(compiled(start, a, b), torch.addmm(start, a, b, beta=0.5))
    assert "beta is 0.5" in str(thunder.explain(compiled).decisions)


def test_deterministic_programs_are_left_to_others() -> None:
    a, b = half(4, 8), half(8, 6)
    compiled = thunder.jit(torch.mm, executors=[executor()])
    torch.use_deterministic_algorithms(True)
    try:
        compiled(a, b)
        assert "the choice of an algorithm depends on times" in str(thunder.explain(compiled).decisions)
    finally:
        torch.use_deterministic_algorithms(False)
    compiled(a, b)
    assert claimed(thunder.last_traces(compiled)[-1])


def test_on_a_machine_without_a_gpu() -> None:
    a, b = half(4, 8), half(8, 6)
    compiled = thunder.jit(torch.mm, executors=[{"cublas": {"least_operations": 0}}])
    torch.testing.assert_close(compiled(a, b), a @ b)
    assert "tensors are on cpu; cuBLASLt runs on CUDA devices" in str(thunder.explain(compiled).decisions)
