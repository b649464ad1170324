"""When two tensors count as different."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from thunder_plugin_debug.difference import Tolerance, difference

DEFAULT = Tolerance()


def differ(actual: Any, expected: Any, tolerance: Tolerance = DEFAULT, **options: Any) -> Any:
    return difference("t", actual, expected, tolerance, **options)


@pytest.mark.parametrize(
    ("dtype", "accepted", "refused"),
    [
        (torch.float64, 1e-8, 1e-6),
        (torch.float32, 1e-5, 1e-3),
        (torch.float16, 1e-3, 1e-1),
        (torch.bfloat16, 1e-2, 2e-1),
        (torch.complex64, 1e-5, 1e-3),
        (torch.float8_e5m2, 0.2, 1.0),
    ],
    ids=str,
)
def test_tolerance_by_dtype(dtype: torch.dtype, accepted: float, refused: float) -> None:
    expected = torch.ones(4, dtype=torch.float64)
    for error, right in ((accepted, True), (refused, False)):
        found = differ((expected + error).to(dtype), expected.to(dtype))
        assert (found is None) == right


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_tolerance_follows_the_magnitude(scale: float) -> None:
    """Gradients are often tiny: an error of a hundredth is one at any scale."""
    expected = torch.randn(100) * scale
    assert differ(expected * 1.00001, expected) is None
    assert differ(expected * 1.01, expected) is not None


def test_elements_near_zero_among_great_ones() -> None:
    """Sums in another order are off by a fraction of what was summed."""
    expected = torch.tensor([1000.0, -1000.0, 0.0])
    assert differ(expected + torch.tensor([0.0, 0.0, 1e-3]), expected) is None
    assert differ(torch.zeros(2), torch.zeros(2)) is None
    assert differ(torch.full((2,), 1e-30), torch.zeros(2)) is not None


def test_where_and_how_much() -> None:
    expected = torch.zeros(2, 3)
    actual = expected.clone()
    actual[0, 1], actual[1, 2] = 0.5, -2.0
    found = differ(actual, expected)
    assert (found.greatest, found.index) == (2.0, (1, 2))
    assert found.text.startswith("t differs in 2 of 6 elements")
    assert found.text.endswith("the most at (1, 2): -2 instead of 0")
    scalar = differ(torch.tensor(1.0), torch.tensor(2.0))
    assert scalar.text.endswith("the most: 1 instead of 2")


def test_values_that_are_not_finite() -> None:
    expected = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    assert differ(expected.clone(), expected) is None
    for index, wrong in ((0, 1.0), (1, -math.inf), (1, math.nan), (2, 0.0), (3, math.nan), (3, math.inf)):
        actual = expected.clone()
        actual[index] = wrong
        found = differ(actual, expected)
        assert (found.greatest, found.index) == (math.inf, (index,))


def test_integers_and_booleans_are_equal_or_not() -> None:
    expected = torch.tensor([1, 2**60])
    assert differ(expected.clone(), expected) is None
    found = differ(expected + torch.tensor([3, 0]), expected)
    assert (found.greatest, found.index, found.text) == (
        3.0,
        (0,),
        "t differs in 1 of 2 elements; the most at (0,): 4 instead of 1",
    )
    assert differ(torch.tensor([True, False]), torch.tensor([True, True])).index == (1,)


def test_metadata() -> None:
    expected = torch.zeros(2, 3)
    assert differ(torch.zeros(3, 2).t(), expected).text == "t has strides (1, 2) instead of (3, 1)"
    assert differ(torch.zeros(3, 2).t(), expected, strides=False) is None
    assert differ(torch.zeros(2, 3, 1), expected).text == "t has shape (2, 3, 1) instead of (2, 3)"
    assert differ(torch.zeros(2, 3).double(), expected).text == "t has dtype torch.float64 instead of torch.float32"
    assert differ(torch.zeros(2, 3, device="meta"), expected).text == "t has device meta instead of cpu"
    assert differ(torch.zeros(2, 3).to_sparse(), expected).text.startswith("t has layout")
    one = torch.zeros(1, 3)
    assert differ(torch.empty_strided((1, 3), (7, 1)).zero_(), one) is None  # the stride of one element means nothing
    assert differ(torch.zeros(0, 3).t().contiguous().t(), torch.zeros(0, 3)) is None


def test_sparse() -> None:
    expected = torch.eye(3).to_sparse()
    assert differ(torch.eye(3).to_sparse(), expected) is None
    assert differ((torch.eye(3) * 2).to_sparse(), expected).greatest == 1.0


def test_other_values() -> None:
    assert differ(3, 3) is None
    assert differ(3, 4).text == "t is 3 instead of 4"
    assert differ(None, torch.ones(1)).text == "t is None instead of a Tensor"


def test_nothing_is_changed() -> None:
    actual, expected = torch.tensor([1.0, math.nan]), torch.tensor([math.inf, 2.0])
    copies = actual.clone(), expected.clone()
    differ(actual, expected)
    torch.testing.assert_close((actual, expected), copies, equal_nan=True)
