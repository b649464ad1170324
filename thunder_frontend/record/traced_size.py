"""Sizes in the user's program while it is recorded: ints for the program, symbols for fake tensors."""

from __future__ import annotations

import functools
import operator
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.errors import SizeVariesError
from thunder_core.ir.number_functions import is_defined
from thunder_core.ir.size import Size, SizeExpr, from_fake, least_of
from thunder_core.tracing.frames import PACKAGES, calls_program, user_location
from thunder_frontend.observe.bytecode import CLASS_NAMES
from thunder_frontend.observe.stand_ins import NUMBER_CLASSES
from thunder_frontend.record import integer_functions

_SYMBOLIC: Final = ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod")
_DIVISIONS: Final = {"__floordiv__": False, "__rfloordiv__": True, "__mod__": False, "__rmod__": True}
"""Methods of floor division; the value is True if the size is the divisor."""
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_OPERATORS: Final = tuple([f"__{name}__" for name in (*_SYMBOLIC, *_COMPARISONS, "divmod", "rdivmod")])
_BY_VALUE: Final = ("hash", "float")
"""Methods that need the value of the size: the program is specialized to it."""
_ARITHMETIC: Final = {
    "__add__": (operator.add, False),
    "__radd__": (operator.add, True),
    "__sub__": (operator.sub, False),
    "__rsub__": (operator.sub, True),
    "__mul__": (operator.mul, False),
    "__rmul__": (operator.mul, True),
}
"""Functions for a size and a float, by method; the second item is True if the size is the second operand."""
_LARGEST_EXPONENT: Final = 4
"""The largest exponent for which a power is a product of sizes."""
_LARGEST_FLOAT_EXPONENT: Final = 16
"""The largest exponent for which the power of any positive size is a float: 2**63 to the 16th is less than 2**1024."""
_CONVERSIONS: Final = ("__int__", "__float__")
_IDENTITIES: Final = ("trunc", "floor", "ceil", "copy")
_METHODS_OF_INTS: Final = frozenset([name for name in vars(int) if not name.startswith("_")])


class _SizeClass(type):
    """The metaclass of `TracedSize`: for programs, the attributes that identify the class are those of ``int``."""

    def __getattribute__(cls, name: str) -> Any:
        return getattr(int, name) if name in CLASS_NAMES and called_by_program() else super().__getattribute__(name)


def called_by_program() -> bool:
    """Whether the caller of this function was itself called by neither PyTorch nor Thunder."""
    package = str(sys._getframe(2).f_globals.get("__name__")).partition(".")[0]
    return package not in ("torch", "sympy") and package not in PACKAGES


class TracedSize(torch.SymInt, metaclass=_SizeClass):
    """A size that varies between calls.

    Arithmetic with ints returns sizes that vary. Quotients, roots, and arithmetic with floats return floats that ops
    compute. A comparison returns a bool, which each call checks. Any other use (``int(n)``, ``range(n)``, ``f"{n}"``, a
    key of a dictionary) takes the value in this call, which each call checks as well. For programs ``isinstance(n,
    int)`` is true.
    """

    @property
    def __class__(self) -> type:
        """``int`` for the program, the class itself for PyTorch and Thunder."""
        return int if called_by_program() else TracedSize

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError("the class of a size cannot be changed")

    @property
    def real(self) -> Any:
        """The size itself, as `numerator`: neither needs its value."""
        return +self

    numerator = real

    @property
    def imag(self) -> int:
        """0, as for each int."""
        return 0

    @property
    def denominator(self) -> int:
        """1, as for each int."""
        return 1

    def __neg__(self) -> Any:
        return traced(torch.SymInt.__neg__(self))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return +self if self >= 0 else -self

    def __bool__(self) -> bool:
        return self != 0

    def __round__(self, digits: int | None = None) -> Any:
        return +self if digits is None else round(int(self), digits)

    def __deepcopy__(self, memo: Any) -> Any:
        return +self

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **options: Any) -> Any:
        sizes = self.node.shape_env.sizes()
        if sizes is None or sizes.thread != threading.get_ident():
            return getattr(function, method)(*map(_plain, operands), **options)
        return sizes.floats.of_numpy(function, method, operands, options)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return sys.modules["numpy"].array(int(self), *args, **kwargs)  # only NumPy calls this

    def __getattr__(self, name: str) -> Any:
        """Other attributes of ints: ``n.bit_length()``."""
        if name in _METHODS_OF_INTS:
            return getattr(int(self), name)
        raise AttributeError(f"'int' object has no attribute {name!r}")


def traced(value: Any) -> Any:
    """A number of fakes as the program gets it, also in a tuple, list or ``torch.Size``. Others are unchanged."""
    if type(value) is torch.SymInt and hasattr(value.node, "shape_env"):  # the SymInts of nested tensors have none
        constant = value.node.maybe_as_int()
        return TracedSize(value.node) if constant is None else constant
    if isinstance(value, torch.Size):
        return torch.Size([traced(item) for item in value])
    if type(value) is tuple or type(value) is list:
        return type(value)([traced(item) for item in value])
    return value


def untraced(value: Any) -> Any:
    """A number of the program as an argument of fakes: its operations are PyTorch's, and are not observed."""
    return torch.SymInt(value.node) if type(value) is TracedSize else value


def traced_size(size: Size) -> Any:
    """A size of a trace as the program gets it."""
    return traced(size.symint) if isinstance(size, SizeExpr) else size


def _plain(value: Any) -> Any:
    """The value of a size in this call, without a check; other objects are unchanged."""
    return value.node.hint if type(value) is TracedSize else value


def _unobserved(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """A method during which the observer is paused, since it runs code of PyTorch and SymPy.

    In other threads than the recording one, it returns Python's result for the value in this call.
    """

    def call(self: TracedSize, *others: Any) -> Any:
        sizes = self.node.shape_env.sizes()
        if sizes is not None and sizes.thread != threading.get_ident():  # of an object that the program reads too
            result = getattr(self.node.hint, name)(*map(_plain, others))
            return _with_other_number(self, name, *others) if result is NotImplemented else result
        watcher = None if sizes is None else sizes.watcher
        if watcher is None:
            return operation(self, *others)
        if name in _CONVERSIONS:
            sizes.floats.convert(name.strip("_"), sys._getframe(1))
        watcher.pause()
        try:
            return operation(self, *others)
        except Exception as error:  # recorded with constants, Python raises the exact one, which the program may catch
            raise SizeVariesError(f"{type(error).__name__}: {error}", location=user_location()) from error
        finally:
            watcher.resume()

    return call


def _is_integer(number: Any) -> bool:
    """Whether an operand is an int or a size; also an int of a subclass with int's operators, as an ``IntEnum``."""
    kind: Any = type(number)
    return kind is int or kind is TracedSize or kind is torch.SymInt or _has_operators_of_int(kind)


@functools.lru_cache(256)
def _has_operators_of_int(kind: type) -> bool:
    return issubclass(kind, int) and all(getattr(kind, name) is getattr(int, name) for name in _OPERATORS)


def _as_int(number: Any) -> Any:
    """An integer operand as PyTorch accepts it: an int of a subclass as a plain int."""
    kind = type(number)
    return number if kind is int or kind is TracedSize or kind is torch.SymInt else int(number)


def _symbolic(name: str) -> Callable[..., Any]:
    """Arithmetic: a size for ints and sizes, a float that ops compute for floats."""
    of_symint = getattr(torch.SymInt, name)

    def operation(self: TracedSize, other: Any) -> Any:
        if _is_integer(other):
            other = _as_int(other)
            return traced(of_symint(self, other)) if name not in _DIVISIONS else _divided(self, name, other)
        if type(other) is float and name in _ARITHMETIC:
            function, swapped = _ARITHMETIC[name]
            return _float(function, (other, self) if swapped else (self, other))
        return _with_other_number(self, name, other)

    return operation


def _comparison(name: str) -> Callable[..., Any]:
    of_symint, function = getattr(torch.SymInt, name), getattr(operator, name)

    def operation(self: TracedSize, other: Any) -> Any:
        if _is_integer(other):
            return bool(of_symint(self, _as_int(other)))
        if type(other) is float:
            return self.node.shape_env.sizes().floats.decided(function, (self, other))
        return _with_other_number(self, name, other)

    return operation


def _divided(size: TracedSize, name: str, other: Any) -> Any:
    """``a // b`` or ``a % b``.

    PyTorch's equal Python's for positive divisors only. For a negative int both operands are negated; for other
    divisors the value of the size is used.
    """
    function, divisor = getattr(torch.SymInt, name), size if _DIVISIONS[name] else other
    if divisor > 0:
        return traced(function(size, other))
    if type(divisor) is int and divisor < 0:
        negated = traced(function(torch.SymInt.__neg__(size), -other))
        return negated if "floordiv" in name else -negated
    return _at_value(size, name, other)


def _division(*, swapped: bool) -> Callable[..., Any]:
    """``n / m``: a float that ops compute; by value if the divisor is zero, for which Python raises an error."""

    def operation(self: TracedSize, other: Any) -> Any:
        operands = (other, self) if swapped else (self, other)
        if type(other) in (int, float, bool, TracedSize) and operands[1] != 0:
            return _float(operator.truediv, operands)
        return _at_value(self, "__rtruediv__" if swapped else "__truediv__", other)

    return operation


def _power(self: TracedSize, exponent: Any, modulus: Any = None) -> Any:
    """``n ** m``: a product for a small positive int; a float for a float or a negative int; otherwise an int."""
    if type(exponent) is int and 0 < exponent <= _LARGEST_EXPONENT and modulus is None:
        return functools.reduce(operator.mul, (self,) * exponent)
    if modulus is None and (type(exponent) is float or (type(exponent) is int and exponent < 0)):
        return _float_power(self, self, exponent)
    return _integer_power(self, "__pow__", self, exponent, modulus)


def _power_of(self: TracedSize, base: Any, modulus: Any = None) -> Any:
    """``m ** n``: a float that ops compute for a float, otherwise an int."""
    if type(base) is float and modulus is None:
        return _float_power(self, base, self)
    return _integer_power(self, "__rpow__", base, self, modulus)


def _integer_power(size: TracedSize, name: str, base: Any, exponent: Any, modulus: Any) -> Any:
    """``base ** exponent`` as an int; by value for a negative exponent, a modulus, or other classes of numbers."""
    other = base if exponent is size else exponent
    if modulus is None and type(other) in (int, TracedSize) and exponent >= 0:
        result = integer_functions.power(_integer, base, exponent)
        if result is not NotImplemented:
            return result
    return _at_value(size, name, other, *([] if modulus is None else [modulus]))


def _integer(function: Callable[..., int], *operands: Any) -> Any:
    """The int that a Python function computes from sizes and ints, as a symbol.

    NotImplemented where it raises an error, or the result exceeds the range of sizes.
    """
    size = next(operand for operand in operands if type(operand) is TracedSize)
    try:
        return size.node.shape_env.sizes().floats.integer(function, operands)
    except OverflowError:
        return NotImplemented


def _integer_operator(name: str, function: Callable[..., Any], *, swapped: bool = False) -> Callable[..., Any]:
    """A shift or bitwise operator, of which the size is the second operand if ``swapped``."""

    def operation(self: TracedSize, other: Any) -> Any:
        if type(other) in (int, bool, TracedSize):
            other = _as_int(other)
            result = function(_integer, *((other, self) if swapped else (self, other)))
            if result is not NotImplemented:
                return result
        return _at_value(self, name, other)

    return operation


def _integer_method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: function(_integer, self)


@calls_program
def integer_of_math(recorder: Any, function: Callable[..., int], *operands: Any) -> Any:
    """The interception of functions of `math` that return ints: a symbol for sizes, Python's result for others."""
    size = next((operand for operand in operands if type(operand) is TracedSize), None)
    if size is None or not all(type(operand) in (int, TracedSize) for operand in operands):
        return function(*operands)

    def operation(_: TracedSize, *numbers: Any) -> Any:
        defined = integer_functions.OF_MATH[function.__name__](*numbers)
        result = _integer(function, *numbers) if defined else NotImplemented
        return function(*[int(number) for number in numbers]) if result is NotImplemented else result

    sizes = size.node.shape_env.sizes()
    if sizes is None or sizes.thread != threading.get_ident():
        return function(*map(_plain, operands))
    return _unobserved(function.__name__, operation)(size, *operands)


def _float_power(size: TracedSize, base: Any, exponent: Any) -> Any:
    """The float that ops compute; by value where Python raises an error, or the result is complex."""
    if exponent is size:
        defined = 0 < base <= 1 and size >= 0
    else:
        defined = abs(exponent) <= _LARGEST_FLOAT_EXPONENT and size > 0
    if defined or size.node.shape_env.sizes().floats.decided(is_defined, ("operator.pow", base, exponent)):
        return _float(operator.pow, (base, exponent))
    return operator.pow(*[int(size) if operand is size else operand for operand in (base, exponent)])


def _divmod(self: TracedSize, other: Any, *, swapped: bool) -> Any:
    """``divmod`` of a size and an int, or of an int and a size if ``swapped``."""
    prefix = "__r" if swapped else "__"
    if not _is_integer(other):
        return _at_value(self, f"{prefix}divmod__", other)
    other = _as_int(other)
    return _divided(self, f"{prefix}floordiv__", other), _divided(self, f"{prefix}mod__", other)


def _float(function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """The float that a Python function computes from sizes and numbers, as an op."""
    size = next(operand for operand in operands if type(operand) is TracedSize)
    return size.node.shape_env.sizes().floats.computed(function, operands)


@calls_program
def larger_or_smaller(recorder: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The interception of `max` and `min`: a symbolic size, valid for all sizes, for a size and a size or an int.

    For other arguments, Python's result.
    """
    if len(args) != 2 or options or {type(arg) for arg in args} not in _OPERANDS_OF_EXTREMA:
        return function(*args, **options)
    size = args[0] if type(args[0]) is TracedSize else args[1]
    sizes = size.node.shape_env.sizes()
    if sizes is None or sizes.thread != threading.get_ident():
        return function(*args)
    return _unobserved(function.__name__, lambda _, *operands: _extremum(function, *operands))(size, *args)


_OPERANDS_OF_EXTREMA: Final = ({TracedSize}, {TracedSize, int})
_LARGEST: Final = max  # the builtin, also while it is intercepted


def _extremum(function: Callable[..., Any], first: Any, second: Any) -> Any:
    """``function(first, second)``: one of them if the facts about symbols determine which, otherwise an expression."""
    largest = function is _LARGEST
    if _never_negative(first - second if largest else second - first):
        return first
    if _never_negative(second - first if largest else first - second):
        return second
    return traced(torch.sym_max(first, second) if largest else torch.sym_min(first, second))


def _never_negative(number: Any) -> bool:
    """Whether a size or number is at least 0 for all sizes that satisfy the facts."""
    return least_of(from_fake(untraced(number))) >= 0


def _with_other_number(size: TracedSize, name: str, other: Any) -> Any:
    """The operation with a float or complex number, by the value of the size; NotImplemented for other objects."""
    if isinstance(other, float | complex):
        return getattr(type(other)(int(size)), name)(other)
    return NotImplemented


def _format(self: TracedSize, specification: str) -> str:
    """A placeholder in a text that is only printed, otherwise the text of the value."""
    text: str | None = self.node.shape_env.sizes().floats.formatted(self, specification)
    return format(int(self), specification) if text is None else text


def _text(self: TracedSize) -> str:
    text: str | None = self.node.shape_env.sizes().floats.formatted(self, None)
    return repr(int(self)) if text is None else text


def _by_value(name: str) -> Callable[..., Any]:
    return lambda self, *others: _at_value(self, name, *others)


def _at_value(size: TracedSize, name: str, *others: Any) -> Any:
    """The operation of Python on the value of the size."""
    if len(others) == 1 and isinstance(others[0], float | complex):
        return _with_other_number(size, name, others[0])
    if others and not isinstance(others[0], int | TracedSize | str):
        return NotImplemented
    plain = [int(other) if type(other) is TracedSize else other for other in others]
    return getattr(int, name)(int(size), *plain)


def _define() -> None:
    operations = {
        **{f"__{name}__": _symbolic(f"__{name}__") for name in _SYMBOLIC},
        **{f"__{name}__": _comparison(f"__{name}__") for name in _COMPARISONS},
        **{f"__{name}__": _by_value(f"__{name}__") for name in _BY_VALUE},
        **{
            f"__{prefix}{name}__": _integer_operator(f"__{prefix}{name}__", function, swapped=prefix == "r")
            for name, function in integer_functions.OPERATORS.items()
            for prefix in ("", "r")
        },
        **{name: _integer_method(function) for name, function in integer_functions.METHODS.items()},
        "__invert__": lambda self: -self - 1,
        **{name: getattr(TracedSize, name) for name in ("__neg__", "__pos__", "__int__", "__index__")},
        "__truediv__": _division(swapped=False),
        "__rtruediv__": _division(swapped=True),
        "__pow__": _power,
        "__rpow__": _power_of,
        "__format__": _format,
        **dict.fromkeys(("__str__", "__repr__"), _text),
        "__divmod__": functools.partial(_divmod, swapped=False),
        "__rdivmod__": functools.partial(_divmod, swapped=True),
    }
    for name, operation in operations.items():
        setattr(TracedSize, name, _unobserved(name, operation))
    for name in _IDENTITIES:
        setattr(TracedSize, f"__{name}__", lambda self: +self)
    NUMBER_CLASSES[TracedSize] = "int"


_define()
