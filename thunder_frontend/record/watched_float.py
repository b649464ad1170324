"""Floats of the trace as arguments of a user's function that is one op: floats that observe what it decides by them.

The function runs on fakes to infer its results, and on the float of each call when the program runs. If it compares
the float, its results may differ, so a comparison is a fact, and a use of the value makes the float a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodDescriptorType
from typing import Any

from thunder_core.tracing.frames import calls_program
from thunder_frontend.record import traced_number
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import traced


class WatchedFloat(float):
    """A float with the value of this call, whose operations are those of a number of the trace."""

    __slots__ = ("number",)
    number: TracedNumber

    def __new__(cls, number: TracedNumber) -> WatchedFloat:
        watched = super().__new__(cls, number.numbers.hint(number))
        watched.number = number
        return watched

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **options: Any) -> Any:
        values = [arg.number.value() if type(arg) is WatchedFloat else arg for arg in args]
        return getattr(function, method)(*values, **options)


def watched(leaf: Any) -> Any:
    """A float of the trace as the user's function gets it while it is inferred; any other argument unchanged."""
    return WatchedFloat(leaf) if type(leaf) is TracedNumber and issubclass(leaf.proxy.python_type, float) else leaf


def _operand(value: Any) -> Any:
    """An operand in the user's function as one in the program."""
    return value.number if type(value) is WatchedFloat else traced(value)


def _operation(name: str) -> Callable[..., Any]:
    of_number = getattr(TracedNumber, name)
    return lambda self, *others: watched(of_number(self.number, *map(_operand, others)))


def _method(name: str) -> Callable[..., Any]:
    return lambda self, *args: getattr(self.number, name)(*args)


@calls_program
def function_of_numbers(recorder: Any, function: Callable[..., float], *operands: Any) -> Any:
    """As `thunder_frontend.record.traced_number.function_of_numbers`, also of watched floats."""
    if not any(type(operand) is WatchedFloat for operand in operands):
        return traced_number.function_of_numbers(recorder, function, *operands)
    return watched(traced_number.function_of_numbers(recorder, function, *map(_operand, operands)))


def _define() -> None:
    for name, function in vars(float).items():
        if not name.startswith("_") and type(function) is MethodDescriptorType:
            setattr(WatchedFloat, name, _method(name))
        elif name in vars(TracedNumber) and name.startswith("__") and callable(function):
            setattr(WatchedFloat, name, _operation(name))


_define()
