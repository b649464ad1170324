"""Python numbers of a trace: floats that vary between calls, ``loss.item()``, and results of arithmetic with them.

The program may return, store and print such a number, compute with it, and pass a float to elementwise functions of
PyTorch: all of these are recorded as ops. A comparison is an op whose result is checked in each run. Any other use
of the number takes its value in this call, with a check. For floats that vary between calls, and numbers computed from
them, a comparison is a guard instead; where their values are needed they are constants in the next recording.
"""

from __future__ import annotations

import math
import operator
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.errors import EndsRecording
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.number_functions import is_defined, is_integer, numpy_function, sum_of
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.size import from_fake
from thunder_core.ir.symbol import Symbol
from thunder_core.tracing.frames import calls_program, user_location
from thunder_frontend.observe.bytecode import CLASS_NAMES
from thunder_frontend.observe.stand_ins import NUMBER_CLASSES
from thunder_frontend.record import formatted_texts
from thunder_frontend.record.traced_size import TracedSize, called_by_program
from thunder_frontend.record.traced_tensor import Variable

if TYPE_CHECKING:
    from thunder_frontend.record.recorder import Recorder


class ClassNeeded(EndsRecording):
    """The program reads the class of a number of the trace.

    Attributes:
        location: the user's line.
        namespace: the global variables of the code that reads it; None where it does not call ``type``.
    """

    def __init__(self, location: SourceLocation | None, reader: FrameType) -> None:
        super().__init__()
        self.location = location
        self.namespace = reader.f_globals if "type" in reader.f_code.co_names else None


class Numbers(ABC):
    """The operations of traced numbers: one subclass for those from tensors, one for those from floats of the inputs.

    Attributes:
        recorder: writes the ops that compute numbers.
    """

    recorder: Recorder

    @abstractmethod
    def value(self, number: TracedNumber) -> Any:
        """The value of the number in this call, which each run checks.

        Raises:
            DataDependentError: the recording does not use values, or the ops so far cannot run while it is recorded.
        """

    @abstractmethod
    def size(self, number: TracedNumber) -> Any:
        """As `value`, for an argument of PyTorch: a varying size if one has that value."""

    @abstractmethod
    def hint(self, number: TracedNumber) -> Any:
        """The value in this call without a check, for uses that do not depend on it. Raises as `value`."""

    @abstractmethod
    def computed(self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber) -> Any:
        """Record arithmetic of Python with numbers, of which ``first`` is the first computed one.

        The result is a `TracedNumber`, or a plain number for a thread that does not record.
        """

    def convert(self, name: str, frame: FrameType) -> None:
        """The code of a frame calls ``int`` or ``float``; see `Recorder.convert`."""
        if self.recorder.mode is not None and self.recorder.mode.observer.observes:
            self.recorder.convert(name, frame)

    @abstractmethod
    def integer(self, function: Callable[..., int], operands: tuple[Any, ...], first: TracedNumber) -> Any:
        """The int that a Python function computes from numbers, as a varying size; otherwise as `computed`."""

    @abstractmethod
    def decided(self, function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber) -> bool:
        """The result of a predicate in this call, which each call or run checks. Raises as `value`."""

    def formatted(self, number: Any, specification: str | None) -> str | None:
        """The text of a traced number or size in what the program prints; None if it has to be that of the value.

        Args:
            specification: as for `thunder_frontend.record.formatted_texts.placeholder`.
        """
        if self.recorder.mode is None:
            return None
        kind = number.proxy.python_type if type(number) is TracedNumber else int
        example = kind(1) if kind in _PYTHON else operand_hint(number)  # a specification is for all numbers of a class
        return formatted_texts.placeholder(self.recorder, number, example, specification)

    def traced(self, proxy: NumberProxy, symbol: Symbol, variables: tuple[Variable, ...] = ()) -> TracedNumber:
        """The `TracedNumber` for a number of the trace; see there for the arguments."""
        number = TracedNumber(self, proxy, symbol, variables)
        self.recorder.tensors.numbers.append(weakref.ref(number))
        return number

    def write(self, function: Callable[..., Any], operands: tuple[Any, ...], kind: type) -> NumberProxy:
        """Record an op that computes a number of the type ``kind`` from ``operands``."""
        with self.recorder.suspension:
            return self.recorder.trace.write_number(symbol_of(function), tuple(map(as_argument, operands)), kind)


def value_of(operand: Any) -> Any:
    """An operand as a plain number: the value of a traced number, with a check."""
    if type(operand) is TracedNumber:
        return operand.value()
    return int(operand) if type(operand) is TracedSize else operand


def operand_hint(operand: Any) -> Any:
    """An operand as a plain number: the value of a traced number in this call, without a check."""
    if type(operand) is TracedNumber:
        return operand.numbers.hint(operand)
    return operand.node.hint if isinstance(operand, torch.SymInt) else operand


def as_argument(operand: Any) -> Any:
    """An operand as the argument of an op: the proxy of a traced number."""
    return operand.proxy if type(operand) is TracedNumber else from_fake(operand)


@cache
def symbol_of(function: Callable[..., Any]) -> Symbol:
    """The symbol of an op that computes a number by a Python function."""
    return Symbol(f"{function.__module__.lstrip('_')}.{function.__name__}", function)


class _NumberClass(type):
    """The metaclass of `TracedNumber`, which hides its name: programs expect ``int``, ``float`` or ``bool``.

    A program that reads the name is recorded again with plain numbers.
    """

    def __getattribute__(cls, name: str) -> Any:
        if name in CLASS_NAMES and called_by_program():
            raise ClassNeeded(user_location(), sys._getframe(1))
        return super().__getattribute__(name)


class TracedNumber(metaclass=_NumberClass):
    """A number that is available only in a run of the program. To programs it looks like a plain number.

    Args:
        numbers: implements its operations.
        proxy: the number in the trace.
        symbol: the call that returned it, or the first call from which it is derived.
        variables: the variables of the tensors from which it was read.
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
        """Lets PyTorch accept it as an argument; the recording mode handles the call."""
        return NotImplemented

    def value(self) -> Any:
        """The value of the number in this call, which each run checks."""
        return self.numbers.value(self)

    def size(self) -> Any:
        """The value of the number in this call as an argument of PyTorch, which each run checks."""
        return self.numbers.size(self)

    def __bool__(self) -> bool:
        if self.proxy.python_type is bool:
            return bool(value_of(self))
        return self.numbers.decided(operator.truth, (self,), self)

    def __repr__(self) -> str:
        text = self._in_printed_text() if called_by_program() else None
        return repr(self.value()) if text is None else text

    def __str__(self) -> str:
        text = self._in_printed_text() if called_by_program() else None
        return str(self.value()) if text is None else text

    def _in_printed_text(self) -> str | None:
        return self.numbers.formatted(self, None) if self.proxy.python_type in _PYTHON else None

    def __float__(self) -> float:
        self.numbers.convert("float", sys._getframe(1))
        return float(self.value())

    def __int__(self) -> int:
        self.numbers.convert("int", sys._getframe(1))
        return int(_integer(math.trunc, self))

    def __format__(self, specification: str) -> str:
        text = self.numbers.formatted(self, specification)
        return format(self.value(), specification) if text is None else text

    def __round__(self, digits: Any = None) -> Any:
        if digits is None:
            return _integer(round, self)
        if type(digits) is int and self.numbers.decided(is_defined, ("builtins.round", self, digits), self):
            return self.numbers.computed(round, (self, digits), self)
        return round(self.value(), digits)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def is_integer(self) -> bool:
        """As that of floats, and of ints since Python 3.12."""
        return not _is_float(self) or self.numbers.decided(is_integer, (self,), self)

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **options: Any) -> Any:
        return numpy_result(function, method, operands, options)

    def __copy__(self) -> TracedNumber:
        return self

    def __deepcopy__(self, memo: Any) -> TracedNumber:
        return self

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return sys.modules["numpy"].array(self.value(), *args, **kwargs)  # only NumPy calls this

    def __getattr__(self, name: str) -> Any:
        """Other attributes of numbers: ``n.is_integer()``."""
        if not hasattr(self.proxy.python_type, name):
            raise AttributeError(f"{self.proxy.python_type.__name__!r} object has no attribute {name!r}")
        return getattr(self.value(), name)


def _is_float(number: TracedNumber) -> bool:
    """Whether a number is a float, or one of NumPy's, which is an instance of ``float``."""
    return issubclass(number.proxy.python_type, float)


def _integer(function: Callable[..., int], number: TracedNumber) -> Any:
    """The int that `math.trunc`, `math.floor`, `math.ceil` or `round` returns for a number, as a varying size."""
    if not _is_float(number) or not number.numbers.decided(_IS_FINITE, (number,), number):
        return function(number.value())
    return number.numbers.integer(function, (number,), number)


def _arithmetic(function: Callable[..., Any], name: str, *, swapped: bool) -> Callable[..., Any]:
    def method(self: TracedNumber, other: Any, *modulus: Any) -> Any:
        kind = type(other)
        if isinstance(other, torch.Tensor):
            return NotImplemented  # the method of ``other`` handles the number
        if kind not in _NUMBERS or modulus:
            return getattr(self.value(), name)(*map(value_of, (other, *modulus)))
        operands = (other, self) if swapped else (self, other)
        if not _defined(function, operands, self):
            return function(*map(value_of, operands))  # it raises an error, or its class depends on values
        return self.numbers.computed(function, operands, self)

    return method


def _defined(function: Callable[..., Any], operands: tuple[Any, ...], first: TracedNumber) -> bool:
    """Whether arithmetic returns a number of the same class in each call that passes the check of this result."""
    left, right = operands
    if function in _DIVISIONS:
        return bool(right)
    if function is operator.pow:
        classes = {item.proxy.python_type if type(item) is TracedNumber else type(item) for item in operands}
        has_float = any(issubclass(kind, float) for kind in classes)
        return has_float and first.numbers.decided(is_defined, ("operator.pow", left, right), first)
    return True


def _comparison(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def method(self: TracedNumber, other: Any) -> Any:
        kind = type(other)
        if isinstance(other, torch.Tensor):
            return NotImplemented
        if kind not in _NUMBERS:
            return getattr(self.value(), name)(other)
        result = self.numbers.decided(function, (self, other), self)
        return result if self.proxy.python_type in _PYTHON else sys.modules["numpy"].bool_(result)

    return method


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: self.numbers.computed(function, (self,), self)


def _to_integer(function: Callable[..., int]) -> Callable[..., Any]:
    return lambda self: _integer(function, self)


def _by_value(name: str) -> Callable[..., Any]:
    def method(self: TracedNumber, *others: Any) -> Any:
        if others and isinstance(others[0], torch.Tensor):
            return NotImplemented
        return getattr(self.value(), name)(*map(value_of, others))

    return method


_PYTHON: Final = (float, int, bool)
_NUMBERS: Final = (TracedNumber, TracedSize, int, float, bool)
_DIVISIONS: Final = frozenset({operator.truediv, operator.floordiv, operator.mod})
_ARITHMETIC: Final = (operator.add, operator.sub, operator.mul, *_DIVISIONS, operator.pow)
_COMPARISONS: Final = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_UNARY: Final = (operator.neg, operator.pos, operator.abs)
_IS_FINITE: Final = math.isfinite  # the function itself, also while it is intercepted
_INTEGERS: Final = (math.trunc, math.floor, math.ceil)
_BY_VALUE: Final = (
    *("complex", "index", "hash", "invert"),
    *("lshift", "rlshift", "rshift", "rrshift", "and", "rand", "or", "ror", "xor", "rxor"),
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
    for integer in _INTEGERS:
        setattr(TracedNumber, f"__{integer.__name__}__", _to_integer(integer))
    for name in _BY_VALUE:
        setattr(TracedNumber, f"__{name}__", _by_value(f"__{name}__"))
    NUMBER_CLASSES[TracedNumber] = "float"


_define()


def are_numbers(operands: Iterable[Any]) -> bool:
    """Whether ops can take all of these operands of Python functions."""
    return {type(item) for item in operands} <= set(_NUMBERS)


_ON_INTS: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("sqrt", "log", "log2", "log10"), lambda number: number > 0),
    **dict.fromkeys(("exp", "exp2", "expm1"), lambda number: number <= 700),
    **dict.fromkeys(("sin", "cos", "tan", "atan", "tanh", "asinh", "erf", "erfc"), lambda number: True),
    **dict.fromkeys(("cbrt", "fabs", "degrees", "radians"), lambda number: True),
}
"""Conditions under which functions of `math` are defined for an int: facts about sizes, also those that ops define."""


@calls_program
def function_of_numbers(recorder: Any, function: Callable[..., float], *operands: Any) -> Any:
    """The interception of functions of `math`: an op computes the float, where the function is defined."""
    first = next((item for item in operands if type(item) in (TracedNumber, TracedSize)), None)
    if first is None or not are_numbers(operands):
        return function(*operands)
    name = function.__name__
    numbers = first.numbers if type(first) is TracedNumber else first.node.shape_env.sizes().floats
    defined = type(first) is TracedSize and len(operands) == 1 and name in _ON_INTS and _ON_INTS[name](first)
    if defined or numbers.decided(is_defined, (f"math.{name}", *operands), first):
        return numbers.computed(function, operands, first)
    return function(*map(value_of, operands))


def numpy_result(function: Any, method: str, operands: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A call of a universal function of NumPy: an op computes its result, if that is a float of NumPy's."""
    numpy = sys.modules["numpy"]
    if method == "__call__" and not options and are_numbers(operands):
        first = next(item for item in operands if type(item) in (TracedNumber, TracedSize))
        numbers = first.numbers if type(first) is TracedNumber else first.node.shape_env.sizes().floats
        name = function.__name__
        with numpy.errstate(all="ignore"):  # a warning is one of each run
            kind = type(function(*map(operand_hint, operands)))
            if kind is numpy.float64 and getattr(numpy, name, None) is function:
                return numbers.computed(numpy_function, (name, *operands), first)
    return getattr(function, method)(*map(value_of, operands), **options)


@calls_program
def exact_sum(recorder: Any, function: Callable[..., float], numbers: Any, /) -> Any:
    """The interception of `math.fsum`: an op computes the float, where the function is defined."""
    items = list(numbers) if isinstance(numbers, list | tuple) else []
    first = next((item for item in items if type(item) is TracedNumber), None)
    if first is None or not are_numbers(items):
        return function(numbers)
    if first.numbers.decided(is_defined, ("numbers.sum_of", *items), first):
        return first.numbers.computed(sum_of, tuple(items), first)
    return function(map(value_of, items))
