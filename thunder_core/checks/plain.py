"""Plain values, which guards compare by type and value."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import math
import pathlib
import re
import sys
from types import EllipsisType, NoneType, NotImplementedType
from typing import Any

import torch

SINGLETON_TYPES = frozenset(
    {NoneType, bool, EllipsisType, NotImplementedType, torch.dtype, torch.layout, torch.memory_format}
)
_LITERAL_TYPES = frozenset({NoneType, bool, int, float, str, bytes, EllipsisType})
_LIBRARY_TYPES = frozenset(
    {
        datetime.date,
        datetime.datetime,
        datetime.timedelta,
        decimal.Decimal,
        fractions.Fraction,
        pathlib.PosixPath,
        pathlib.PurePosixPath,
        pathlib.WindowsPath,
        pathlib.PureWindowsPath,
        re.Pattern,
        torch.finfo,
        torch.iinfo,
    }
)
ATOM_TYPES = SINGLETON_TYPES | _LITERAL_TYPES | _LIBRARY_TYPES | {complex, range, torch.device, torch.qscheme}
_FROZEN_CONTAINERS = frozenset({tuple, frozenset, torch.Size, slice})
_PLAIN_CONTAINERS = _FROZEN_CONTAINERS | {list, dict, set}
_COMPARABLE = frozenset({NoneType, bool, int, str, bytes})
_LONGEST_LITERAL = 60


def is_plain(value: Any) -> bool:
    """Whether a value is immutable and consists of plain values only."""
    kind = type(value)
    if kind in ATOM_TYPES:
        return True
    if kind in _FROZEN_CONTAINERS:
        if kind is slice:
            return is_plain(value.start) and is_plain(value.stop) and is_plain(value.step)
        return all(map(is_plain, value))
    return isinstance(value, enum.Enum) or _is_numpy_scalar(kind)


def is_plain_content(value: Any, _inside: tuple[int, ...] = ()) -> bool:
    """Whether a value consists of plain values and of builtin containers of them, mutable or not."""
    kind = type(value)
    if kind in ATOM_TYPES:
        return True
    if kind not in _PLAIN_CONTAINERS:
        return is_plain(value)
    if kind is slice:
        return is_plain(value)
    if id(value) in _inside:
        return False
    inside = (*_inside, id(value))
    if kind is dict:
        return all(map(is_plain, value)) and all(is_plain_content(item, inside) for item in value.values())
    return all(is_plain_content(item, inside) for item in value)


def same_items_of(value: Any) -> tuple[int, ...]:
    """Which items of a plain container, and of containers in it, are the same objects.

    Returns:
        For each item, in order, the number of the object; equal numbers are the same object.
    """
    numbers: dict[int, int] = {}
    result: list[int] = []

    def number(container: Any) -> None:
        if type(container) not in _PLAIN_CONTAINERS or type(container) is slice:
            return
        for item in container.values() if type(container) is dict else container:
            is_new = id(item) not in numbers
            result.append(numbers.setdefault(id(item), len(numbers)))
            if is_new:
                number(item)

    number(value)
    return tuple(result)


def copy_content(value: Any) -> Any:
    """A copy of a container of plain values, including nested containers."""
    kind = type(value)
    if kind is list:
        return [copy_content(item) for item in value]
    if kind is tuple:
        return tuple([copy_content(item) for item in value])
    if kind is dict:
        return {key: copy_content(item) for key, item in value.items()}
    if kind is set:
        return set(value)
    return value


def identical(value: Any, expected: Any) -> bool:
    """Whether two values have the same types and values at all levels.

    Unlike ``==``, this distinguishes 1 from 1.0 and True, and 0.0 from -0.0, and NaN is identical to NaN. Dictionaries
    are identical if their keys have the same order, too.
    """
    kind = type(expected)
    if type(value) is not kind:
        return False
    if kind is int or kind is str or kind is bytes or kind in SINGLETON_TYPES:
        return bool(value == expected)
    if kind is float:
        if value == expected:
            return math.copysign(1.0, value) == math.copysign(1.0, expected)
        return bool(value != value and expected != expected)
    if kind is complex:
        return identical(value.real, expected.real) and identical(value.imag, expected.imag)
    if kind is dict:
        return len(value) == len(expected) and all(
            identical(key, other_key) and identical(item, other)
            for (key, item), (other_key, other) in zip(value.items(), expected.items(), strict=True)
        )
    if kind is set or kind is frozenset:
        return bool(value == expected) and _sorted_types(value) == _sorted_types(expected)
    if kind is slice:
        return (
            identical(value.start, expected.start)
            and identical(value.stop, expected.stop)
            and identical(value.step, expected.step)
        )
    if isinstance(expected, tuple | list):
        kinds = set(map(type, expected))
        if kinds <= _COMPARABLE:  # at the speed of C
            return bool(value == expected) and list(map(type, value)) == list(map(type, expected))
        return len(value) == len(expected) and all(map(identical, value, expected))
    if isinstance(expected, enum.Enum | torch.Tensor):
        return value is expected
    if kind is decimal.Decimal:  # Decimal("2.50") equals Decimal("2.5"), and comparisons with a signaling NaN fail
        return not value.compare_total(expected)
    both_nan = value != value and expected != expected  # scalars of NumPy
    # a time equals that in another zone
    return bool(both_nan or value == expected) and repr(value) == repr(expected)


def key_text(key: Any) -> str:
    """The text of a key for messages, without calls of the user's code."""
    text = repr(key) if is_plain(key) else f"<{type(key).__qualname__}>"
    return text if len(text) <= _LONGEST_LITERAL else text[: _LONGEST_LITERAL - 3] + "..."


def literal(value: Any) -> str | None:
    """A short Python literal for a value; None if there is none."""
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return None
    if kind in _LITERAL_TYPES:
        text = repr(value)
        return text if len(text) <= _LONGEST_LITERAL else None
    if kind is tuple:
        parts = [literal(item) for item in value]
        if any(part is None for part in parts):
            return None
        text = "(" + ", ".join(str(part) for part in parts) + ("," if len(parts) == 1 else "") + ")"
        return text if len(text) <= _LONGEST_LITERAL else None
    return None


def _sorted_types(values: Any) -> list[str]:
    return sorted(str(type(item)) for item in values)


def _is_numpy_scalar(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, (numpy.generic, numpy.dtype))
