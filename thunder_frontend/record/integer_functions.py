"""Functions of ints that return ints, of sizes that vary: shifts, bitwise operators, powers, `math.gcd` and the like.

Where arithmetic gives the result (``n << 2`` is ``n * 4``, ``n & 7`` is ``n % 8``), it is an expression of the symbols,
from which PyTorch draws conclusions. Other results are symbols, which each call computes before the run.

The functions here take a `Compute` and two operands, sizes or ints. They return NotImplemented where Python has to
compute with the values: it raises an error, returns a float, or a result that is not a size.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from thunder_core.ir import number_functions

Compute = Callable[..., Any]
"""Returns the symbol for the result of a function, the first argument, of ints and sizes."""
_LARGEST_SHIFT: Final = 62
"""The largest shift for which 2 to its power is in the range of sizes."""


def _shifted_left(compute: Compute, number: Any, count: Any) -> Any:
    if count < 0:
        return NotImplemented
    if type(count) is int and count <= _LARGEST_SHIFT:
        return number * 2**count
    return compute(number_functions.shifted_left, number, count)


def _shifted_right(compute: Compute, number: Any, count: Any) -> Any:
    if count < 0:
        return NotImplemented
    if type(count) is int and count <= _LARGEST_SHIFT:
        return number // 2**count
    return compute(operator.rshift, number, count)


def _and(compute: Compute, one: Any, other: Any) -> Any:
    """``one & other``: a remainder for a mask of the lowest bits, and the rest for a mask of all others."""
    number, mask = (one, other) if type(other) is int else (other, one)
    if type(mask) is int and _is_power_of_two(abs(mask) + (mask >= 0)):
        return number % (mask + 1) if mask >= 0 else number - number % -mask
    return compute(operator.and_, one, other)


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _by_symbol(function: Callable[..., int]) -> Callable[..., Any]:
    return lambda compute, *numbers: compute(function, *numbers)


OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "lshift": _shifted_left,
    "rshift": _shifted_right,
    "and": _and,
    "or": _by_symbol(operator.or_),
    "xor": _by_symbol(operator.xor),
}
METHODS: Final[dict[str, Callable[..., Any]]] = {
    "bit_length": _by_symbol(number_functions.bit_length),
    "bit_count": _by_symbol(number_functions.bit_count),
}


def power(compute: Compute, base: Any, exponent: Any) -> Any:
    """``base ** exponent`` for an exponent that is not negative."""
    return compute(number_functions.power, base, exponent)


OF_MATH: Final[dict[str, Callable[..., bool]]] = {
    "isqrt": lambda number: number >= 0,
    "gcd": lambda *numbers: True,
    "lcm": lambda *numbers: True,
    "comb": lambda number, count: type(count) is int and count >= 0 and number >= 0,
}
"""Functions of `math` that return ints, with the conditions under which they do."""
