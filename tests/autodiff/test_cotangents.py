"""As in eager: strides of gradients that are summed, as traces say them, and gradients that are zero by formula."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch

import thunder
from thunder_testing.pointwise import Pointwise

W = torch.randn(3, 2)


def transposed_then_expanded(x: torch.Tensor) -> torch.Tensor:
    return x.sum() + (x.t() * W).sum()


def expanded_then_transposed(x: torch.Tensor) -> torch.Tensor:
    return (x.t() * W).sum() + x.sum()


def of_an_intermediate(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return (y.t() * W).sum() + (y * W.t().contiguous()).sum() + y.sum()


@pytest.mark.parametrize("program", [transposed_then_expanded, expanded_then_transposed, of_an_intermediate])
@pytest.mark.parametrize("by_columns", [False, True])
def test_strides_of_sums(program: Callable[[torch.Tensor], torch.Tensor], by_columns: bool) -> None:
    x = torch.randn(3, 2).t() if by_columns else torch.randn(2, 3)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(program(x), x)
    compiled = thunder.jit(program)
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x)[0], expected)
    (gradient,) = thunder.last_backward_traces(compiled)[-1].output
    assert gradient.stride == expected.stride()


ZEROS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sgn": torch.sgn,
    "sign": torch.sign,
    "round": torch.round,
    "floor division": lambda x: torch.div(x, 2, rounding_mode="floor"),
    "power of zero": lambda x: x**0,
    "no copies": lambda x: x.repeat(0, 1),
    "columns": lambda x: x.t().sgn(),
    "poisson": lambda x: torch.poisson(x.abs()),
    "normal": lambda x: torch.normal(x, 1.0),
    "a branch": lambda x: torch.where(x > 0, torch.ones(()), x.sgn()),
    "a square": lambda x: x.sgn().square(),
}


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.parametrize("executor", ["reference", "pointwise"])
@pytest.mark.battery
def test_zero_gradients_are_there_where_they_are_in_eager(name: str, executor: str) -> None:
    """For each combination of outputs with a cotangent: zeros for an input that one depends on, else None."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return ZEROS[name](x), x * 2, y * 3, ZEROS[name](y)

    compiled = thunder.jit(program, executors=[Pointwise()] if executor == "pointwise" else [])
    for count in (1, 2, 3, 4):
        for positions in combinations(range(4), count):
            gradients = []
            for run in (program, compiled):
                x, y = (torch.tensor([[1.0, -2.0, 0.0], [2.0, 0.0, -1.0]]).requires_grad_() for _ in range(2))
                outputs = run(x, y)
                loss = sum(outputs[position].sum() for position in positions)
                gradients.append(torch.autograd.grad(loss, (x, y), allow_unused=True))
            for expected, found in zip(*gradients, strict=True):
                assert (expected is None) == (found is None)
                if expected is not None:
                    torch.testing.assert_close(found, expected)
