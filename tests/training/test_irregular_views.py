"""Writes through views that other views overlap, and through views that show one place twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.training.steps import check, leaf

View = Callable[[torch.Tensor], torch.Tensor]


def written(view: View) -> Callable[[torch.Tensor], Any]:
    """A program that writes a view of a value; others were made before."""

    def program(x: torch.Tensor) -> Any:
        y = x * 2
        column = y.t()[1]
        part = view(y)
        part.mul_(3)
        return y, column, part

    return program


VIEWS: dict[str, View] = {
    "part of a column by its place": lambda y: y.as_strided((2,), (4,), 1),
    "other memory than the argument shows": lambda y: y[1].as_strided((4,), (4,), 0),
    "by its place in a diagonal": lambda y: y.diagonal().as_strided((2,), (5,), 5),
    "diagonal of transposed": lambda y: y.t().diagonal(1),
    "every other on a diagonal": lambda y: y.diagonal(-1)[::2],
    "window": lambda y: y.unfold(0, 2, 1)[0],
    "windows side by side": lambda y: y.unfold(0, 2, 2),
    "row of a sliding view": lambda y: y.as_strided((3, 2), (1, 1), 0)[1],
    "interleaved": lambda y: y.as_strided((2, 3), (3, 2), 0),
    "row of an expanded view": lambda y: y[0].expand(3, 4)[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_written_views(name: str) -> None:
    check(written(VIEWS[name]), lambda: (leaf(4, 4),))


@pytest.mark.parametrize("name", VIEWS)
def test_written_views_of_an_input(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        part = VIEWS[name](x)
        part.mul_(3)
        return part, x + 1

    check(program, lambda: (torch.randn(4, 4),))


@pytest.mark.parametrize("view", [lambda y: y.unfold(0, 2, 1), lambda y: y.as_strided((3, 2), (1, 1), 0)])
def test_elements_in_one_place(view: View) -> None:
    """What is written there depends on the kernel, so that PyTorch runs each line; one value for all does not."""

    def filled(x: torch.Tensor) -> Any:
        y = x * 2
        part = view(y)
        part.fill_(3)
        return y, part + 1

    def multiplied(x: torch.Tensor) -> Any:
        return written(view)(x)

    check(filled, lambda: (leaf(4, 4),))
    check(multiplied, lambda: (leaf(4, 4),))
