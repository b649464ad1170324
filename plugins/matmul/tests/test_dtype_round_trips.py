"""Which conversions go away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder
from thunder_plugin_matmul.dtype_round_trips import DtypeRoundTrips, is_lossless


def conversions(function: Callable[..., Any], x: Tensor) -> int:
    """How many run, after results were compared to the bit."""
    compiled = thunder.jit(function, executors=[], transforms=[DtypeRoundTrips()])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0, check_stride=True)
    return sum(line.symbol.name == "to" for line in thunder.last_traces(compiled)[-1].symbols)


def half() -> Tensor:
    return torch.randn(4, 3).to(torch.bfloat16)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: (x * 2).float().bfloat16().sin(), 0),
        (lambda x: x.float().bfloat16().sin(), 0),
        (lambda x: (x * 2).float().t()[None].bfloat16().sin(), 0),
        (lambda x: (x * 2).double().reshape(-1).float().sin(), 2),
        (lambda x: ((y := (x * 2).float()).exp(), y.bfloat16().sin()), 1),
        (lambda x: ((y := x * 2).float().exp(), y.t().float().t().sin()), 1),
        (lambda x: (x * 2).half().bfloat16().sin(), 2),
        (lambda x: (x * 2).float().half().sin(), 2),
        (lambda x: (x * 2).float().bfloat16(), 2),
        (lambda x: (x * 2).float()[1:].bfloat16().sin(), 2),
        (lambda x: (x * 2).float()[:, ::2].bfloat16().sin(), 2),
        (lambda x: (x * 2).float().expand(2, 4, 3).bfloat16().sin(), 2),
    ],
    ids=[
        "there and back", "of an argument", "views between", "another dtype", "both needed", "converted before a view",
        "with loss", "to a third", "returned", "of a part", "of columns", "of repeated elements",
    ],
)  # fmt: skip
def test_conversions(function: Callable[..., Any], left: int) -> None:
    assert conversions(function, half()) == left


def test_values_that_are_written() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.float()
        x.zero_()
        return y.bfloat16().sin(), x

    compiled = thunder.jit(program, executors=[], transforms=[DtypeRoundTrips()])
    x, y = half(), half()
    y.copy_(x)
    torch.testing.assert_close(compiled(x), program(y), rtol=0, atol=0)


def test_arguments_that_are_written_before_backward() -> None:
    """Eager keeps another copy for backward."""
    x, w = half(), half().requires_grad_()
    program = thunder.jit(lambda x, w: x.float().bfloat16() * w, executors=[], transforms=[DtypeRoundTrips()])
    output, expected = program(x, w), x.clone()
    x.zero_()
    assert torch.equal(torch.autograd.grad(output.sum(), w)[0], expected)


FLOATS = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize("one", [*FLOATS, torch.int8, torch.uint8, torch.int32])
@pytest.mark.parametrize("other", [*FLOATS, torch.float64, torch.int16, torch.int64])
def test_lossless(one: torch.dtype, other: torch.dtype) -> None:
    """Against all values of 16 bits, and random ones of 32."""
    if one.itemsize <= 2:
        bits = torch.arange(-(2 ** (8 * one.itemsize - 1)), 2 ** (8 * one.itemsize - 1))
        values = bits.to({1: torch.int8, 2: torch.int16}[one.itemsize]).view(one)
    else:
        bits = torch.randint(-(2**31), 2**31 - 1, (1 << 16,), generator=torch.Generator().manual_seed(0))
        values = bits.to(torch.int32).view(one)
    values = values[~values.isnan()]
    same = torch.equal(values.to(other).to(one).view(torch.uint8), values.view(torch.uint8))
    comparable = one.is_floating_point == other.is_floating_point
    assert is_lossless(one, other) == (same and comparable)
