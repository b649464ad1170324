"""Functions of Python numbers in traces and guards: when they are defined, and as text."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

_MODULES: Final = {"math": math, "operator": operator}
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

    Otherwise it raises an error or returns a complex number.
    """
    module, _, function = name.partition(".")
    try:
        return isinstance(getattr(_MODULES[module], function)(*operands), float)
    except (ArithmeticError, ValueError):
        return False


def text_of_call(function: Callable[..., Any], operands: tuple[str, ...]) -> str:
    """Python of a call of an operator, a function of `math` or `is_defined`, from Python of its operands."""
    text = _OPERATORS.get(function)
    if text is not None:
        return text.format(*operands)
    name = function.__name__ if function is is_defined else f"math.{function.__name__}"
    return f"{name}({', '.join(operands)})"


def text_of_number(number: float) -> str:
    """Python of a number, which binds as tightly as a name."""
    if type(number) is float and not math.isfinite(number):
        return f'float("{number}")'
    text = repr(number)
    return f"({text})" if text.startswith("-") else text
