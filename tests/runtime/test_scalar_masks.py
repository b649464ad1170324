"""Assignments by masks of which some have no dimensions: PyTorch reads those while it is at the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import DataDependentError

INDICES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "mask": lambda y, m: m,
    "uint8": lambda y, m: m.byte(),
    "before_number": lambda y, m: (m, 0),
    "after_number": lambda y, m: (0, m),
    "after_ellipsis": lambda y, m: (..., m),
    "between_slices": lambda y, m: (slice(None), m, slice(1, None)),
    "after_mask": lambda y, m: (y > 0, m),
    "after_indices": lambda y, m: (torch.tensor([0, 1]), m),
    "two": lambda y, m: (m, m, None, torch.tensor([0, 1])),
    "with_true": lambda y, m: (m, True),
    "of_one_dimension": lambda y, m: y[:, 0] > 0,
}


def same(program: Callable[..., Any], *args: torch.Tensor) -> None:
    """Values and gradients are those of eager, or the types of errors."""

    def outcome(call: Callable[..., Any]) -> Any:
        own = [arg.clone().requires_grad_() for arg in args]
        try:
            result = call(*own)
            result.sum().backward()
        except (IndexError, RuntimeError) as error:
            return type(error)
        return [result.detach(), *[arg.grad for arg in own]]

    expected, actual = outcome(program), outcome(thunder.jit(program, executors=[]))
    if isinstance(expected, type):
        assert actual is expected
    else:
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
@pytest.mark.slow
def test_scalar_masks_in_indices(index: Callable[..., Any], sign: float) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[index(y, x.sum() > 0)] = 5
        return y * x

    same(program, sign * torch.rand(3, 3))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    "value",
    [
        lambda x: 0,
        lambda x: 2.5,
        lambda x: True,
        lambda x: x.mean(),
        lambda x: torch.tensor([4.0]),
        lambda x: x[0, :1],
        lambda x: x[0],  # too many: an error
        lambda x: torch.tensor(4.0, dtype=torch.float64),  # an error of masks without dimensions alone
    ],
    ids=["int", "float", "bool", "computed", "one", "view", "three", "dtype"],
)
@pytest.mark.slow
def test_values_for_tensors_of_any_number_of_dimensions(value: Callable[[torch.Tensor], Any], sign: float) -> None:
    def scalar(x: torch.Tensor) -> torch.Tensor:
        y = x.sum()
        y[y > 0] = value(x)
        return y * x

    def matrix(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[y > 1] = value(x)
        return y * x

    def mask_alone(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[x.sum() > 0] = value(x)
        return y * x

    for program in (scalar, matrix, mask_alone):
        same(program, sign * torch.rand(3, 3))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_arguments_without_dimensions_are_written(sign: float) -> None:
    def program(y: torch.Tensor) -> torch.Tensor:
        y[y > 0] = 0
        return y + 1

    expected, actual = torch.tensor(sign), torch.tensor(sign)
    torch.testing.assert_close(thunder.jit(program, executors=[])(actual), program(expected))
    assert torch.equal(actual, expected)


def test_reading_by_scalar_masks_needs_their_value() -> None:
    with pytest.raises(DataDependentError):  # the size of the result is the number of true elements of the mask
        thunder.jit(lambda x: x.sum()[x.sum() > 0], executors=[], sharp_edges="error")(torch.rand(3))
