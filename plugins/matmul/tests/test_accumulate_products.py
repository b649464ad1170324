"""Which sums accumulate, and which must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from matrix_programs import Gated
from torch import Tensor, nn
from torch.nn import functional as F

import thunder
from thunder_core.ir.trace import Trace
from thunder_plugin_matmul.accumulate_products import AccumulateProducts


def names(trace: Trace) -> list[str]:
    return [line.symbol.name for line in trace.symbols]


def inference(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """What runs, after the result was compared."""
    compiled = thunder.jit(function, executors=[], transforms=[AccumulateProducts()])
    with torch.no_grad():
        torch.testing.assert_close(compiled(*arguments), function(*arguments))
    return names(thunder.last_traces(compiled)[-1])


def matrices(*shape: int) -> list[Tensor]:
    return [torch.randn(*(shape or (4, 4))) for _ in range(2)]


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a @ b + b @ a,
        lambda a, b: a.sin() + b @ a,
        lambda a, b: F.linear(a, b) + a.sin(),
        lambda a, b: a @ b + (b @ a + a @ a),
    ],
    ids=["products", "product last", "product first", "three"],
)
def test_sums_in_place(function: Callable[..., Tensor]) -> None:
    found = inference(function, *matrices())
    assert "addmm_" in found
    assert not {"torch.add", "torch.addmm"} & {*found}


@pytest.mark.parametrize(
    "function",
    [lambda a, b: a.sin() @ b + a.sin(), lambda a, b: torch.addmm(a.sin(), a.sin(), b)],
    ids=["sum", "one call"],
)
def test_a_summand_that_is_a_factor_is_not_overwritten(function: Callable[..., Tensor]) -> None:
    assert "torch.addmm" in inference(function, *matrices())


def test_batches() -> None:
    found = inference(lambda a, b: torch.bmm(a, b) + torch.bmm(b, a), *matrices(2, 3, 3))
    assert "baddbmm_" in found


def test_rows_of_batches() -> None:
    layer = nn.Linear(4, 4, bias=False).requires_grad_(False)
    assert "addmm_" in inference(lambda a, b: layer(a) + layer(b), *matrices(2, 3, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + a @ b,
        lambda a, b: (x := a @ b, x + b @ a),
        lambda a, b: (x := a.sin())[0] + (x + b @ a)[0] + x[1],
        lambda a, b: torch.add(a @ b, b @ a, alpha=3),
        lambda a, b: (a @ b).t() + (b @ a).t(),
        lambda a, b: a[0].sin() + a[0] @ b,
        lambda a, b: a.sum(0) + a @ b,
        lambda a, b: a.sin() + F.linear(a, b, a[0]),
        lambda a, b: a[:1].sin() + a[:1] @ b,
        lambda a, b: a.double() + (a @ b).double() * 1,
        lambda a, b: (c := torch.stack([a, b])).view(4, 2, 4).sin() + c.transpose(0, 1) @ b,
    ],
    ids=[
        "argument",
        "returned",
        "read later",
        "scaled",
        "transposed",
        "vector",
        "broadcast",
        "bias",
        "row",
        "converted",
        "rows apart",
    ],
)
def test_what_stays(function: Callable[..., Any]) -> None:
    found = inference(function, *matrices())
    assert not [name for name in found if "addmm" in name and name != "torch.addmm"]


def test_the_gradient_of_a_value_that_two_layers_read() -> None:
    model, eager = Gated(), Gated()
    compiled = thunder.jit(model, executors=[], transforms=[AccumulateProducts()])
    x = torch.randn(2, 3, 6)
    compiled(x).sum().backward()
    eager(x).sum().backward()
    for one, other in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert names(thunder.last_backward_traces(compiled)[-1]).count("addmm_") == 1 + 3  # and the weights' gradients


def test_gradients_under_autocast_are_added_before_they_are_converted() -> None:
    model = Gated()
    compiled = thunder.jit(model, executors=[], transforms=[AccumulateProducts()])
    with torch.autocast("cpu", torch.bfloat16):
        loss = compiled(torch.randn(2, 3, 6)).float().sum()
    loss.backward()
    assert "addmm_" in names(thunder.last_backward_traces(compiled)[-1])


def test_an_absent_cotangent() -> None:
    """The backward that is specialized for it accumulates what is left, and never into a zero."""
    model = Gated()

    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x * 2
        return model.gate(x), model.up(x)

    x = torch.randn(3, 6, requires_grad=True)
    compiled = thunder.jit(two, executors=[], transforms=[AccumulateProducts()])
    for choice in ([0], [1], [0, 1]):
        found, expected = ([sum(f(x)[i].sum() for i in choice)] for f in (compiled, two))
        torch.testing.assert_close(torch.autograd.grad(found[0], x), torch.autograd.grad(expected[0], x))


def test_a_program_that_autograd_records() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 2

    def program(a: Tensor, b: Tensor) -> Tensor:
        y = (a @ b).sin()
        return Double.apply(y.exp() + b @ a)

    a, b = (item.requires_grad_() for item in matrices())
    compiled = thunder.jit(program, executors=[], transforms=[AccumulateProducts()])
    torch.testing.assert_close(
        torch.autograd.grad(compiled(a, b).sum(), (a, b)), torch.autograd.grad(program(a, b).sum(), (a, b))
    )


def test_rounds_the_sum_once() -> None:
    """Closer to the exact sum than eager, in bfloat16."""
    torch.manual_seed(0)
    a, b, c, d = (torch.randn(64, 64, dtype=torch.bfloat16) for _ in range(4))
    exact = a.double() @ b.double() + c.double() @ d.double()
    compiled = thunder.jit(lambda: a @ b + c @ d, executors=[], transforms=[AccumulateProducts()])
    found, eager = ((value.double() - exact).abs().mean() for value in (compiled(), a @ b + c @ d))
    assert found <= eager * 1.01
