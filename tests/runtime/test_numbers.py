"""Numbers that are not instances of Python's own classes: NumPy's scalars, members of enums, subclasses."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import thunder


class Axis(enum.IntEnum):
    ROW = 0
    COLUMN = 1


def local_enum() -> Any:
    """An enum whose members no dotted name gives."""

    class Position(enum.IntEnum):
        FIRST = 0
        SECOND = 1

    return Position


Position = local_enum()


class Dimension(int):
    """A number that knows what it counts."""


PROGRAMS = {
    "reshape to a NumPy integer": lambda x: x.reshape(np.int64(16)),
    "reshape to NumPy integers": lambda x: x.reshape(np.int64(2), np.int32(8)),
    "view as a NumPy integer": lambda x: x.view(np.int64(-1)),
    "NumPy float": lambda x: x * np.float32(2.5) + np.float64(0.5),
    "NumPy index": lambda x: x[np.int64(1), np.array([0, 2])],
    "NumPy dimension": lambda x: x.sum(np.int64(1)),
    "enum as dimension": lambda x: x.sum(Axis.COLUMN),
    "enum as index": lambda x: x[Axis.COLUMN],
    "local enum as dimension": lambda x: x.sum(Position.SECOND),
    "local enum as index": lambda x: x[Position.SECOND],
    "slice of local enum members": lambda x: x[..., Position.FIRST : Position.SECOND],
    "subclass of int": lambda x: x.unsqueeze(Dimension(1)) * Dimension(3),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_numbers_are_what_they_are_in_eager(program: Callable[[Any], Any]) -> None:
    compiled = thunder.jit(program, executors=[])
    for seed in range(2):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert thunder.cache_hits(compiled) == 1


class Mode(torch.autograd.Function):
    """Tells members of an enum and instances of a subclass from numbers that are equal."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mode: Any) -> torch.Tensor:
        ctx.factor = 2 if mode is Position.SECOND else 3 if type(mode) is Dimension else 5
        return x * ctx.factor

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None]:
        return cotangent * ctx.factor, None


@pytest.mark.parametrize("mode", [Position.SECOND, Dimension(1), 1], ids=["enum", "subclass", "int"])
def test_functions_of_the_user_get_the_object_that_the_program_gives_them(mode: Any) -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    y.data.copy_(x.data)
    result, expected = thunder.jit(lambda x: Mode.apply(x, mode), executors=[])(x), Mode.apply(y, mode)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
