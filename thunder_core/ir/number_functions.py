"""Functions of Python numbers in traces and guards: when they are defined, and as text."""

from __future__ import annotations

import builtins
import math
import operator
import sys
from collections.abc import Callable
from typing import Any, Final

_MODULES: Final = {"math": math, "operator": operator, "builtins": builtins, "numbers": sys.modules[__name__]}
_OPERATORS: Final[dict[Callable[..., Any], str]] = {
    operator.add: "({} + {})",
    operator.sub: "({} - {})",
    operator.mul: "({} * {})",
    operator.truediv: "({} / {})",
    operator.floordiv: "({} // {})",
    operator.mod: "({} % {})",
    operator.pow: "({} ** {})",
    operator.neg: "(-{})",
    operator.pos: "(+{})",
    operator.abs: "abs({})",
    operator.rshift: "({} >> {})",
    operator.and_: "({} & {})",
    operator.or_: "({} | {})",
    operator.xor: "({} ^ {})",
    operator.truth: "bool({})",
    operator.eq: "({} == {})",
    operator.ne: "({} != {})",
    operator.lt: "({} < {})",
    operator.le: "({} <= {})",
    operator.gt: "({} > {})",
    operator.ge: "({} >= {})",
}


def is_defined(name: str, *operands: float) -> bool:
    """Whether the function with this name, ``"math.exp"`` or ``"operator.pow"``, returns a float for these numbers.

    Functions of this module have names such as ``"numbers.sum_of"``.

    Otherwise it raises an error or returns a complex number.
    """
    module, _, function = name.partition(".")
    try:
        return isinstance(getattr(_MODULES[module], function)(*operands), float)
    except (ArithmeticError, ValueError):
        return False


def is_integer(number: float) -> bool:
    """``number.is_integer()``."""
    return number.is_integer()


def is_close(one: float, other: float, rel_tol: float, abs_tol: float) -> bool:
    """`math.isclose` with positional tolerances."""
    return math.isclose(one, other, rel_tol=rel_tol, abs_tol=abs_tol)


def sum_of(*numbers: float) -> float:
    """`math.fsum` of these numbers."""
    return math.fsum(numbers)


def numpy_function(name: str, *numbers: float) -> Any:
    """The function of NumPy with this name, of numbers; NumPy is imported if a program calls it."""
    return getattr(sys.modules["numpy"], name)(*numbers)


_LARGEST_EXPONENT: Final = 63
"""The largest exponent of a power of two that is the size of a tensor, or a shift that is applied to one."""


def shifted_left(number: int, count: int) -> int:
    """``number << count``. Raises OverflowError, without computing it, for counts that exceed any size."""
    return power(2, count) * number


def power(base: int, exponent: int) -> int:
    """``base ** exponent`` of ints. Raises OverflowError, without computing it, where it exceeds any size.

    It also raises this for a negative exponent, with which the power is not an int.
    """
    if exponent < 0 or (abs(base) > 1 and exponent > _LARGEST_EXPONENT):
        raise OverflowError("a power of ints that is not a size")
    return int(base**exponent)


def bit_length(number: int) -> int:
    """``number.bit_length()``."""
    return number.bit_length()


def bit_count(number: int) -> int:
    """``number.bit_count()``."""
    return number.bit_count()


_BY_NAME: Final = (
    *(is_defined, is_integer, is_close, sum_of, numpy_function, round, float),
    *(shifted_left, power, bit_length, bit_count),
)
"""Functions whose calls consist of the name and the operands."""
NAMES: Final = {"math": math, **{function.__name__: function for function in _BY_NAME}}
"""The globals of calls as text."""


def text_of_call(function: Callable[..., Any], operands: tuple[str, ...]) -> str:
    """Python of a call of an operator, or a function of `math` or in `NAMES`, from Python of its operands."""
    text = _OPERATORS.get(function)
    if text is not None:
        return text.format(*operands)
    name = function.__name__ if function in _BY_NAME else f"math.{function.__name__}"
    return f"{name}({', '.join(operands)})"


def text_of_number(number: float) -> str:
    """Python of a number, which binds as tightly as a name."""
    if type(number) is float and not math.isfinite(number):
        return f'float("{number}")'
    text = repr(number)
    return f"({text})" if text.startswith("-") else text
