"""Checks that run with the program, for what could not be known while it was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.errors import DataDependentError, WrongGuess
from thunder_core.ir.symbol import Symbol, Tag

READERS: Final[dict[str, Callable[..., Any]]] = {
    "bool": torch.Tensor.__bool__,
    "item": torch.Tensor.item,
    "int": torch.Tensor.__int__,
    "float": torch.Tensor.__float__,
    "complex": torch.Tensor.__complex__,
    "index": torch.Tensor.__index__,
    "tolist": torch.Tensor.tolist,
    "contains": torch.Tensor.__contains__,
    "format": torch.Tensor.__format__,
    "repr": torch.Tensor.__repr__,
    "number": lambda number: number,
}
"""How a line reads a value: of a tensor, or the Python number that an earlier line gave."""


_SAVED: Final = ("call the compiled function, which has a program for each value; a saved one is for one of them",)
SHAPES: Final = "shapes"
"""How `check_shapes` reads."""


def check_value(position: int, reader: str, args: tuple[Any, ...], expected: Any) -> None:
    """Check that a value of the program is the one that its Python saw while it was recorded.

    Args:
        position: how many such checks come before it in the program.
        reader: a name in `READERS`.
        args: what it is called with.
        expected: what was read; NaN equals NaN, and zeros with other signs differ.

    Raises:
        WrongGuess: it is another value.
    """
    actual = READERS[reader](*args)
    if not is_same(actual, expected):
        raise WrongGuess(position, actual, expected)


def check_shapes(position: int, tensors: tuple[torch.Tensor, ...], expected: tuple[Any, ...]) -> None:
    """Check that tensors have the shapes and strides with which the rest of the program was recorded.

    Args:
        position: how many checks of values come before it in the program.
        expected: shape and strides of each.

    Raises:
        WrongGuess: one has others.
    """
    actual = tuple([(tuple(tensor.shape), tensor.stride()) for tensor in tensors])
    if actual != expected:
        raise WrongGuess(position, actual, expected)


def require_value(position: int, reader: str, args: tuple[Any, ...], expected: Any) -> None:
    """`check_value` of a program without siblings: no other program runs for another value.

    Raises:
        DataDependentError: it is another value.
    """
    try:
        check_value(position, reader, args, expected)
    except WrongGuess as wrong:
        raise DataDependentError(str(wrong), advice=_SAVED) from None


def require_shapes(position: int, tensors: tuple[torch.Tensor, ...], expected: tuple[Any, ...]) -> None:
    """`check_shapes` of a program without siblings. Raises DataDependentError for other shapes."""
    try:
        check_shapes(position, tensors, expected)
    except WrongGuess as wrong:
        raise DataDependentError(str(wrong), advice=_SAVED) from None


def is_same(one: Any, other: Any) -> bool:
    """Whether two numbers, or nested lists of numbers, have equal types and equal bits: NaN is NaN, 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return bool(one.hex() == other.hex())
    if isinstance(one, complex):
        return is_same(one.real, other.real) and is_same(one.imag, other.imag)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


def check_metadata(tensor: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> None:
    """Check that a tensor has the metadata that the rest of the program was recorded with.

    Follows a call whose metadata could depend on values but did not when it was tried on sample values.

    Raises:
        DataDependentError: it has other metadata this time.
    """
    if tuple(tensor.shape) == shape and tensor.dtype is dtype and (tensor.stride() == stride or tensor.numel() == 0):
        return
    raise DataDependentError(
        f"the program was recorded with a result of shape {shape}, strides {stride} and {dtype} here, and this time "
        f"it has shape {tuple(tensor.shape)}, strides {tensor.stride()} and {tensor.dtype}: it depends on values",
        advice=("run this operation outside of the compiled function",),
    )


def check_true(condition: torch.Tensor | bool, message: object) -> None:
    """``torch._assert`` of a condition that depends on values.

    Raises:
        AssertionError: it is false.
    """
    if not condition:
        raise AssertionError(message)


CHECK_TRUE = Symbol("thunder_core.symbols.checks.check_true", check_true)
CHECK_METADATA = Symbol("thunder_core.symbols.checks.check_metadata", check_metadata)
CHECK_SHAPES = Symbol("thunder_core.symbols.checks.check_shapes", check_shapes, tags=frozenset({Tag.GUESS}))
CHECK_VALUE = Symbol("thunder_core.symbols.checks.check_value", check_value, tags=frozenset({Tag.GUESS}))
REQUIRED: Final = {
    CHECK_VALUE: Symbol("thunder_core.symbols.checks.require_value", require_value),
    CHECK_SHAPES: Symbol("thunder_core.symbols.checks.require_shapes", require_shapes),
}
"""What takes the place of the checks in a program that is saved."""
