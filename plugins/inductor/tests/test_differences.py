"""What kernels of Inductor would do otherwise than PyTorch's: values, dtypes, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_plugin_inductor import compilers

pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)


def same(program: Callable[..., Any], *args: torch.Tensor) -> Any:
    """The compiled program, which does as eager."""
    compiled = thunder.jit(program, executors=["inductor"])
    expected, actual = program(*args), compiled(*args)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype is other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    return compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_remainders(dtype: torch.dtype) -> None:
    values = torch.tensor([1.0, -1.0, 0.0, -0.0, 5.5, -7.25, 1e30, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    x, y = torch.cartesian_prod(values, values).unbind(1)

    def program(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.remainder(x, y) * 1, (x % 2.5) * 1, (5 % y) * 1, (x % torch.inf) * 1]

    same(program, x.contiguous(), y.contiguous())
    same(lambda x, y: [x % y + 0, x % 3 + 0], torch.tensor([5, -5, 7]), torch.tensor([3, 3, -4]))


def test_sums_of_bools() -> None:
    x, y = torch.tensor([True, True, False, False] * 9), torch.tensor([True, False, True, False] * 9)
    same(lambda x, y: [torch.add(x, y, alpha=a) ^ False for a in (0, 1, 3, True, False)], x, y)


def test_any_of_uint8() -> None:
    x = torch.tensor([[1, 0, 0], [3, 4, 0]], dtype=torch.uint8)
    same(lambda x: [(x * 1).any(1), (x * 1).any(), (x * 1).any(0, keepdim=True), (x * 1).all(0), (x > 0).any(1)], x)


def test_integers_divided_by_zero() -> None:
    compiled = same(
        lambda x, y: [torch.div(x, y, rounding_mode="trunc") + 1, torch.div(x * 1.5, y, rounding_mode="trunc") + 1],
        torch.tensor([5, 7, -3]),
        torch.tensor([1, -2, 2]),
    )
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.tensor([5, 7, -3]), torch.tensor([1, 0, 2]))
    reasons = {reason for line in thunder.explain(compiled).decisions for _, reason in line.declined}
    assert "Inductor's kernel ends the process where an integer is divided by zero" in reasons


@pytest.mark.parametrize(
    "program",
    [
        lambda x, at: (x + 1)[at] * 2,
        lambda x, at: F.embedding(at, x + 1) * 2,
        lambda x, at: F.cross_entropy(x * 2, at),
    ],
    ids=["index", "embedding", "cross_entropy"],
)
def test_indices_out_of_range_are_index_errors(program: Callable[..., Any]) -> None:
    x, at = torch.randn(4, 4), torch.tensor([0, 1, 2, 9])
    for each in (program, thunder.jit(program, executors=["inductor"])):
        with pytest.raises(IndexError, match=r"out of (range|bounds)"):
            each(x, at)
