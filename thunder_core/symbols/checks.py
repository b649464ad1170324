"""Runtime checks of values and metadata that were guessed while the program was recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from types import CodeType
from typing import Any, Final

import torch

from thunder_core.errors import DataDependentError, WrongGuess
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.size import SIZE_NAMES
from thunder_core.ir.symbol import Symbol, Tag


def text(tensor: torch.Tensor, node: str = "") -> str:
    """``repr`` of a tensor as it is where autograd records it.

    Args:
        node: the name of the class of its ``grad_fn``; empty for a leaf that requires grad.
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaf = tensor.detach().clone().requires_grad_()
        return repr(leaf if not node else _identity(node)(leaf))


@functools.cache
def _identity(node: str) -> Callable[[torch.Tensor], Any]:
    """A function that returns its argument, with a ``grad_fn`` of a class of this name."""

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
            return tensor.view_as(tensor)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    def identity(tensor: torch.Tensor) -> Any:
        result: Any = Identity.apply(tensor)
        type(result.grad_fn).__name__ = node
        return result

    return identity


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
    "text": text,
    "number": lambda number: number,
}
"""Functions by which a check reads a value: of a tensor, or a Python number that an earlier op returned."""


_SAVED: Final = ("call the compiled function, which has a program for each value; a saved one is for one of them",)
SHAPES: Final = "shapes"
"""How `check_shapes` reads."""


def check_value(position: int, reader: str, args: tuple[Any, ...], expected: Any, sizes: tuple[int, ...] = ()) -> None:
    """Check that a value of the program equals the one that was read while it was recorded.

    Args:
        position: number of such checks before it in the program.
        reader: a name in `READERS`.
        args: arguments of the reader.
        expected: the recorded value; NaN equals NaN, and zeros of different signs differ.
        sizes: the sizes that earlier ops define, for the exception.

    Raises:
        WrongGuess: the value differs.
    """
    actual = READERS[reader](*args)
    if not is_same(actual, expected):
        raise WrongGuess(position, actual, expected, sizes)


def check_shapes(
    position: int, tensors: tuple[torch.Tensor, ...], expected: tuple[Any, ...], sizes: tuple[int, ...] = ()
) -> None:
    """Check that tensors have the shapes and strides with which the rest of the program was recorded.

    Args:
        position: number of checks of values before it in the program.
        expected: shape and strides of each.
        sizes: as for `check_value`.

    Raises:
        WrongGuess: a shape or stride differs.
    """
    actual = geometries_of(tensors)
    if not are_alike(actual, expected):
        raise WrongGuess(position, actual, expected, sizes)


def check_sizes(
    position: int,
    conditions: tuple[str, ...],
    symbols: dict[str, int],
    reader: str,
    args: tuple[Any, ...],
    sizes: tuple[int, ...],
) -> None:
    """Check the conditions on sizes defined by earlier ops that the rest of the program relies on.

    Args:
        position: position of the check of the value from which the last of these sizes comes.
        conditions: Python expressions of the symbols.
        symbols: the sizes, by name.
        reader, args: the reader of the value as for `check_value`, or `SHAPES` and tensors.
        sizes: as for `check_value`.

    Raises:
        WrongGuess: a condition does not hold.
    """
    failing = unmet(conditions, symbols)
    if failing is not None:
        actual = geometries_of(args) if reader == SHAPES else READERS[reader](*args)
        raise WrongGuess(position, actual, failing, sizes)


def checked_value(check: BoundSymbol) -> tuple[str, tuple[Any, ...], Any]:
    """``(reader, arguments, expected value)`` of an op that calls `check_shapes` or `check_value`."""
    if check.symbol is CHECK_SHAPES:
        return SHAPES, check.args[1], check.args[2]
    return check.args[1], check.args[2], check.args[3]


def unmet(conditions: Iterable[str], symbols: Mapping[str, int]) -> str | None:
    """The first of the conditions on sizes that does not hold; None if all hold."""
    for condition in conditions:
        try:
            holds = eval(_code(condition), {**SIZE_NAMES, **symbols})
        except ZeroDivisionError:
            holds = False
        if not holds:
            return condition
    return None


@functools.cache
def _code(condition: str) -> CodeType:
    return compile(condition, "<size>", "eval")


def geometries_of(tensors: Iterable[torch.Tensor]) -> tuple[Any, ...]:
    """Shape and strides of each tensor."""
    return tuple([(tuple(tensor.shape), tensor.stride()) for tensor in tensors])


def are_alike(actual: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """Whether shapes are equal, and the strides that decide where elements are."""
    return actual == expected or (
        len(actual) == len(expected)
        and all(
            shape == other and (0 in shape or all(size == 1 or a == b for size, a, b in zip(shape, stride, steps)))
            for (shape, stride), (other, steps) in zip(actual, expected)
        )
    )


def size_of(tensor: torch.Tensor, dimension: int) -> int:
    """A data-dependent size, as a number of the program."""
    return tensor.shape[dimension]


def require_value(position: int, reader: str, args: tuple[Any, ...], expected: Any, sizes: Any = ()) -> None:
    """`check_value` of a program without siblings: no other program runs for another value.

    Raises:
        DataDependentError: the value differs.
    """
    try:
        check_value(position, reader, args, expected)
    except WrongGuess as wrong:
        raise DataDependentError(str(wrong), advice=_SAVED) from None


def require_shapes(
    position: int, tensors: tuple[torch.Tensor, ...], expected: tuple[Any, ...], sizes: Any = ()
) -> None:
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
        DataDependentError: the metadata differ.
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


CHECK_TRUE = Symbol("thunder_core.symbols.checks.check_true", check_true, tags=frozenset({Tag.ASSERTION}))
CHECK_METADATA = Symbol("thunder_core.symbols.checks.check_metadata", check_metadata, tags=frozenset({Tag.ASSERTION}))
CHECK_SHAPES = Symbol("thunder_core.symbols.checks.check_shapes", check_shapes, tags=frozenset({Tag.GUESS}))
CHECK_SIZES = Symbol("thunder_core.symbols.checks.check_sizes", check_sizes, tags=frozenset({Tag.GUESS}))
SIZE_OF = Symbol("thunder_core.symbols.checks.size_of", size_of)
CHECK_VALUE = Symbol("thunder_core.symbols.checks.check_value", check_value, tags=frozenset({Tag.GUESS}))
REQUIRED: Final = {
    CHECK_VALUE: Symbol("thunder_core.symbols.checks.require_value", require_value),
    CHECK_SHAPES: Symbol("thunder_core.symbols.checks.require_shapes", require_shapes),
}
"""The replacements of the checks in a saved program."""
