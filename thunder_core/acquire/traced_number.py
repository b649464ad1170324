"""Python numbers of a trace: floats that vary between calls, ``loss.item()``, and what Python makes of them.

The program may return, store and print such a number, compute with it, and hand a float to elementwise functions of
PyTorch: all that are lines. A comparison is a line whose outcome is checked in each run. Whatever else needs the number
itself takes that of this call, with a check of it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol

import torch

from thunder_core.acquire.traced_size import TracedSize, called_by_program
from thunder_core.acquire.variable import Variable
from thunder_core.errors import EndsRecording
from thunder_core.guards.bytecode import CLASS_NAMES
from thunder_core.guards.stand_ins import NUMBER_CLASSES
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.size import from_fake
from thunder_core.ir.symbol import Symbol
from thunder_core.tracing.user_frames import user_location


class NumbersNeeded(EndsRecording):
    """A program with numbers that lines compute cannot be recorded so: it is recorded with those of this call."""


class ClassNeeded(EndsRecording):
    """The program asks for the class of a number that lines compute.

    Attributes:
        location: the user's line.
    """

    def __init__(self, location: SourceLocation | None) -> None:
        super().__init__()
        self.location = location


class Numbers(Protocol):
    """What the recorder knows of the numbers of a program."""

    def value(self, number: TracedNumber) -> Any:
        """The number of this call, which each run checks.

        Raises:
            DataDependentError: it may not be taken, or the lines so far cannot be run while the program is recorded.
        """

    def size(self, number: TracedNumber) -> Any:
        """As `value`, for a call of PyTorch: a size that varies where one has that value."""

    def hint(self, number: TracedNumber) -> Any:
        """The number of this call, for what does not depend on it. Raises as `value` does."""

    def computed(self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber) -> Any:
        """Record what Python computes of numbers, of which ``first`` is the first that lines compute.

        The result is a `TracedNumber`, or a plain number for a thread that does not record.
        """


def value_of(operand: Any) -> Any:
    """An operand where the number itself is needed."""
    if type(operand) is TracedNumber:
        return operand.value()
    return int(operand) if type(operand) is TracedSize else operand


def hint_of(operand: Any) -> Any:
    """The number of this call, for what does not depend on it."""
    if type(operand) is TracedNumber:
        return operand.numbers.hint(operand)
    return operand.node.hint if isinstance(operand, torch.SymInt) else operand


def as_argument(operand: Any) -> Any:
    """An operand as the line that computes with it has it."""
    return operand.proxy if type(operand) is TracedNumber else from_fake(operand)


@cache
def symbol_of(function: Callable[..., Any]) -> Symbol:
    """The symbol of a function of Python that a line computes a number with."""
    return Symbol(f"{function.__module__.lstrip('_')}.{function.__name__}", function)


class _NumberClass(type):
    """The class of `TracedNumber`, which has no name to programs: it would be that of ``int``, ``float`` or ``bool``.

    A program that asks for it is recorded with the numbers themselves.
    """

    def __getattribute__(cls, name: str) -> Any:
        if name in CLASS_NAMES and called_by_program():
            raise ClassNeeded(user_location())
        return super().__getattribute__(name)


class TracedNumber(metaclass=_NumberClass):
    """A number of the program that only the running program knows. Programs take it for the number that it is.

    Args:
        numbers: what the recorder knows.
        proxy: the number in the trace.
        symbol: the call that gave it, or the first one that it comes from.
        variables: of the tensors that it was read from.
    """

    __slots__ = ("__weakref__", "numbers", "proxy", "symbol", "variables")

    def __init__(self, numbers: Numbers, proxy: NumberProxy, symbol: Symbol, variables: tuple[Variable, ...]) -> None:
        self.numbers = numbers
        self.proxy = proxy
        self.symbol = symbol
        self.variables = variables

    @property
    def __class__(self) -> type:
        """``float``, ``int`` or ``bool`` to the program, the class itself to PyTorch and Thunder."""
        return self.proxy.python_type if called_by_program() else TracedNumber

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError("the class of a number cannot be changed")

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        """PyTorch takes it for an argument; the mode of the recording handles the call."""
        return NotImplemented

    def value(self) -> Any:
        """The number of this call, which each run checks."""
        return self.numbers.value(self)

    def size(self) -> Any:
        """The number of this call for one of PyTorch's, which each run checks."""
        return self.numbers.size(self)

    def __bool__(self) -> bool:
        number = self if self.proxy.python_type is bool else self.numbers.computed(operator.truth, (self,), self)
        return bool(value_of(number))

    def __repr__(self) -> str:
        return repr(self.value())

    def __copy__(self) -> TracedNumber:
        return self

    def __deepcopy__(self, memo: Any) -> TracedNumber:
        return self

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return sys.modules["numpy"].array(self.value(), *args, **kwargs)  # NumPy it is who calls

    def __getattr__(self, name: str) -> Any:
        """What else numbers have: ``n.is_integer()``."""
        if not hasattr(self.proxy.python_type, name):
            raise AttributeError(f"{self.proxy.python_type.__name__!r} object has no attribute {name!r}")
        return getattr(self.value(), name)


def _arithmetic(function: Callable[..., Any], name: str, *, swapped: bool) -> Callable[..., Any]:
    def method(self: TracedNumber, other: Any) -> Any:
        kind = type(other)
        if isinstance(other, torch.Tensor):
            return NotImplemented  # its own method takes the number
        if kind not in _NUMBERS:
            return getattr(self.value(), name)(other)
        operands = (other, self) if swapped else (self, other)
        if function is operator.truediv and (type(operands[1]) is TracedNumber or not operands[1]):
            return getattr(self.value(), name)(value_of(other))  # it may raise
        return self.numbers.computed(function, operands, self)

    return method


def _comparison(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def method(self: TracedNumber, other: Any) -> Any:
        kind = type(other)
        if isinstance(other, torch.Tensor):
            return NotImplemented
        if kind not in _NUMBERS:
            return getattr(self.value(), name)(other)
        return value_of(self.numbers.computed(function, (self, other), self))

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: self.numbers.computed(function, (self,), self)


def _by_value(name: str) -> Callable[..., Any]:
    def method(self: TracedNumber, *others: Any) -> Any:
        if others and isinstance(others[0], torch.Tensor):
            return NotImplemented
        return getattr(self.value(), name)(*map(value_of, others))

    return method


_NUMBERS: Final = (TracedNumber, TracedSize, int, float, bool)
_ARITHMETIC: Final = (operator.add, operator.sub, operator.mul, operator.truediv)
_COMPARISONS: Final = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_UNARY: Final = (operator.neg, operator.pos, operator.abs)
_BY_VALUE: Final = (
    *("int", "float", "complex", "index", "str", "format", "hash", "round", "trunc", "floor", "ceil", "invert"),
    *("floordiv", "rfloordiv", "mod", "rmod", "divmod", "rdivmod", "pow", "rpow", "lshift", "rlshift", "rshift"),
    *("rrshift", "and", "rand", "or", "ror", "xor", "rxor"),
)


def _define() -> None:
    for function in _ARITHMETIC:
        for prefix in ("", "r"):
            name = f"__{prefix}{function.__name__}__"
            setattr(TracedNumber, name, _arithmetic(function, name, swapped=prefix == "r"))
    for function in _COMPARISONS:
        name = f"__{function.__name__}__"
        setattr(TracedNumber, name, _comparison(function, name))
    for unary in _UNARY:
        setattr(TracedNumber, f"__{unary.__name__}__", _unary(unary))
    for name in _BY_VALUE:
        setattr(TracedNumber, f"__{name}__", _by_value(f"__{name}__"))
    NUMBER_CLASSES[TracedNumber] = "float"


_define()
