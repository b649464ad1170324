"""What counts as the same value."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._comparison import _DTYPE_PRECISIONS

from thunder_testing.conformance.tolerance import DEFAULT, EXACT, Tolerances, same_bits, value_problem

HALF = DEFAULT[torch.float16]


def problem(actual: Any, expected: Any, exact: Any = None, dtype: torch.dtype = torch.float16, **options: Any) -> Any:
    reference = None if exact is None else torch.tensor(exact, dtype=torch.float64)
    given = torch.tensor(actual, dtype=dtype), torch.tensor(expected, dtype=dtype)
    return value_problem(*given, options.get("tolerance", DEFAULT.get(dtype, EXACT)), lambda: reference)


def test_defaults_are_those_of_assert_close() -> None:
    assert {dtype: _DTYPE_PRECISIONS[dtype] for dtype in DEFAULT} == DEFAULT


def test_near_enough() -> None:
    assert problem([1.0, 2.0], [1.0, 2.001]) is None
    assert problem([1.0, float("nan"), float("inf")], [1.0, float("nan"), float("inf")]) is None
    assert problem([], []) is None


@pytest.mark.parametrize("wrong", [1.01, float("nan"), float("inf"), -1.0])
def test_too_far(wrong: float) -> None:
    text = problem([1.0, wrong], [1.0, 1.0])
    assert text.startswith("1 of 2 elements are wrong; the worst, at [1], is ")
    assert "where eager PyTorch gives 1.0 (allowed difference: 0.00101)" in text


def test_eager_may_be_worse() -> None:
    """Eager is off by 0.1: twice that is allowed, and no more, even on the other side."""
    assert problem([1.0, 2.0], [1.0, 2.1], exact=[1.0, 2.0]) is None
    assert problem([1.0, 1.85], [1.0, 2.1], exact=[1.0, 2.0]) is None
    assert problem([1.0, 1.7], [1.0, 2.1], exact=[1.0, 2.0]) is not None
    assert problem([1.15, 2.0], [1.0, 2.1], exact=[1.0, 2.0]) is None  # its error is one of the whole tensor
    assert problem([1.0, 2.0], [1.0, 2.1], exact=[[1.0, 2.0]]) is not None  # no reference for this result


def test_eager_overflows() -> None:
    assert problem([60000.0], [float("inf")], exact=[60000.0]) is None
    assert problem([100.0], [float("inf")], exact=[60000.0]) is not None


def test_other_types_are_equal() -> None:
    assert problem([1, 2], [1, 2], dtype=torch.int64) is None
    assert problem([1, 3], [1, 2], dtype=torch.int64) is not None
    assert problem([True], [False], dtype=torch.bool) is not None
    assert problem([1.0], [1.0 + 1e-15], dtype=torch.float64, tolerance=EXACT, exact=[1.0]) is not None


def test_complex() -> None:
    assert problem([1 + 1j], [1 + 1.000001j], dtype=torch.complex64) is None
    assert problem([1 + 1j], [1 - 1j], dtype=torch.complex64) is not None


def test_which_tolerance() -> None:
    given = {"torch.exp": (1.0, 0.0), torch.float16: (2.0, 0.0), ("torch.exp", torch.float64): (3.0, 0.0)}
    tolerances = Tolerances(given)
    assert tolerances.of("torch.exp", torch.float64) == (3.0, 0.0)
    assert tolerances.of("torch.exp", torch.float16) == (1.0, 0.0)
    assert tolerances.of("torch.sin", torch.float16) == (2.0, 0.0)
    assert tolerances.of("torch.sin", torch.float32) == DEFAULT[torch.float32]
    assert tolerances.of("torch.sin", torch.int32) == EXACT


def test_same_bits() -> None:
    assert same_bits(torch.tensor([float("nan"), 0.0]), torch.tensor([float("nan"), 0.0]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
    assert not same_bits(torch.zeros(2), torch.zeros(2, 1))
    assert same_bits(torch.zeros(0, 3), torch.zeros(0, 3))
    assert same_bits(torch.arange(6).view(2, 3).t(), torch.arange(6).view(2, 3).t().contiguous())
    assert same_bits(torch.tensor([1 + 1j]).conj(), torch.tensor([1 - 1j]))
