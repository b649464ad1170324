"""Sizes and ints of subclasses, such as members of an `IntEnum`."""

from __future__ import annotations

import enum
from collections.abc import Callable

import pytest
import torch

import thunder


class Length(enum.IntEnum):
    FOUR = 4
    TWO = 2


class Shifted(int):
    """A subclass of int that overrides an operator."""

    def __radd__(self, other: int) -> int:
        return int(self) + other + 100


def compared(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    return x * (10 if n == Length.FOUR else 2) * (3 if n < Length.FOUR else 5) + (n != Length.FOUR)


def computed(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    return x * (n + Length.TWO) + n // Length.TWO + Length.FOUR * n + n % Length.TWO + sum(divmod(n, Length.TWO))


def with_an_operator_of_its_own(x: torch.Tensor) -> torch.Tensor:
    return x * (x.shape[0] + Shifted(1))


@pytest.mark.parametrize("program", [compared, computed, with_an_operator_of_its_own])
def test_ints_of_subclasses(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled = thunder.jit(program, dynamic=True, executors=[])
    for length in (3, 4, 5, 4, 9):
        x = torch.ones(length, 2)
        torch.testing.assert_close(compiled(x), program(x))
