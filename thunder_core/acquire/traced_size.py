"""The size that the user's program handles while it is recorded: an int to it, a symbol to fakes."""

from __future__ import annotations

import functools
import operator
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.errors import SizeVariesError
from thunder_core.guards.bytecode import CLASS_NAMES
from thunder_core.guards.stand_ins import NUMBER_CLASSES
from thunder_core.ir.size import Size, SizeExpr, from_fake, least_of
from thunder_core.tracing.user_frames import user_location

_SYMBOLIC: Final = ("add", "radd", "sub", "rsub", "mul", "rmul", "floordiv", "rfloordiv", "mod", "rmod")
_DIVISIONS: Final = {"__floordiv__": False, "__rfloordiv__": True, "__mod__": False, "__rmod__": True}
"""What divides with floor, and whether the size is the divisor."""
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_BY_VALUE: Final = (
    *("rpow", "lshift", "rlshift", "rshift", "rrshift"),
    *("and", "rand", "or", "ror", "xor", "rxor", "invert", "hash", "str", "repr", "format", "float"),
)
"""What Python does with the number itself: the program is compiled for that number then."""
_ARITHMETIC: Final = {
    "__add__": (operator.add, False),
    "__radd__": (operator.add, True),
    "__sub__": (operator.sub, False),
    "__rsub__": (operator.sub, True),
    "__mul__": (operator.mul, False),
    "__rmul__": (operator.mul, True),
}
"""What gives a float of a size and a float, and whether the size is the second operand."""
_LARGEST_PRODUCT: Final = 4
_THE_SAME: Final = ("trunc", "floor", "ceil", "copy")
_METHODS_OF_INTS: Final = frozenset([name for name in vars(int) if not name.startswith("_")])
_INTERNAL: Final = ("torch", "sympy", "thunder", "thunder_core")


class _SizeClass(type):
    """The class of `TracedSize`, which has the name of ``int`` to programs."""

    def __getattribute__(cls, name: str) -> Any:
        return getattr(int, name) if name in CLASS_NAMES and called_by_program() else super().__getattribute__(name)


def called_by_program() -> bool:
    """Whether the function that asks was called by neither PyTorch nor Thunder."""
    return str(sys._getframe(2).f_globals.get("__name__")).partition(".")[0] not in _INTERNAL


class TracedSize(torch.SymInt, metaclass=_SizeClass):
    """A size that varies between calls.

    Arithmetic keeps it so. A quotient, a root and a product with a float are floats that lines compute. A comparison
    gives a bool, and is checked in each call; what needs the number itself (``int(n)``, ``range(n)``, ``f"{n}"``, a key
    of a dictionary) gives it, and is checked likewise. Programs take it for an int: ``isinstance(n, int)`` holds.
    """

    @property
    def __class__(self) -> type:
        """``int`` to the program, the class itself to PyTorch and Thunder."""
        return int if called_by_program() else TracedSize

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise TypeError("the class of a size cannot be changed")

    @property
    def real(self) -> Any:
        """The size: of its attributes that ints have, those that do not need its value."""
        return +self

    numerator = real

    @property
    def imag(self) -> int:
        """Zero."""
        return 0

    @property
    def denominator(self) -> int:
        """One."""
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

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return sys.modules["numpy"].array(int(self), *args, **kwargs)  # NumPy it is who calls

    def __getattr__(self, name: str) -> Any:
        """What else ints have: ``n.bit_length()``."""
        if name in _METHODS_OF_INTS:
            return getattr(int(self), name)
        raise AttributeError(f"'int' object has no attribute {name!r}")


def traced(value: Any) -> Any:
    """A number of fakes as the program gets it; a tuple or ``torch.Size`` likewise. Anything else as it is."""
    if type(value) is torch.SymInt and hasattr(value.node, "shape_env"):  # not those of nested tensors
        constant = value.node.maybe_as_int()
        return TracedSize(value.node) if constant is None else constant
    if isinstance(value, torch.Size):
        return torch.Size([traced(item) for item in value])
    if type(value) is tuple or type(value) is list:
        return type(value)([traced(item) for item in value])
    return value


def untraced(value: Any) -> Any:
    """A number of the program as fakes take it: what PyTorch does with it is not what the program does."""
    return torch.SymInt(value.node) if type(value) is TracedSize else value


def traced_size(size: Size) -> Any:
    """A size of a trace as the program gets it."""
    return traced(size.symint) if isinstance(size, SizeExpr) else size


def _plain(value: Any) -> Any:
    return value.node.hint if type(value) is TracedSize else value


def _unobserved(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """What PyTorch and SymPy run to compute with sizes is no part of the program, and other threads get plain ints."""

    def call(self: TracedSize, *others: Any) -> Any:
        sizes = self.node.shape_env.sizes()
        if sizes is not None and sizes.thread != threading.get_ident():  # it read a place that the program reads too
            result = getattr(self.node.hint, name)(*map(_plain, others))
            return _with_other_number(self, name, *others) if result is NotImplemented else result
        watcher = None if sizes is None else sizes.watcher
        if watcher is None:
            return operation(self, *others)
        watcher.pause()
        try:
            return operation(self, *others)
        except Exception as error:  # the program may catch it: with constants it is Python's for sure
            raise SizeVariesError(f"{type(error).__name__}: {error}", location=user_location()) from error
        finally:
            watcher.resume()

    return call


def _symbolic(name: str) -> Callable[..., Any]:
    of_numbers = getattr(torch.SymInt, name)

    def operation(self: TracedSize, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool or kind is TracedSize or kind is torch.SymInt:
            return traced(of_numbers(self, other)) if name not in _DIVISIONS else _divided(self, name, other)
        if kind is float and name in _ARITHMETIC:
            function, swapped = _ARITHMETIC[name]
            return _float(function, (other, self) if swapped else (self, other))
        return _with_other_number(self, name, other)

    return operation


def _comparison(name: str) -> Callable[..., Any]:
    of_numbers = getattr(torch.SymInt, name)

    def operation(self: TracedSize, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool or kind is TracedSize or kind is torch.SymInt:
            return bool(of_numbers(self, other))
        return _with_other_number(self, name, other)

    return operation


def _divided(size: TracedSize, name: str, other: Any) -> Any:
    """``a // b`` or ``a % b``. PyTorch's terms hold for positive divisors: ints are negated, others are by value."""
    function, divisor = getattr(torch.SymInt, name), size if _DIVISIONS[name] else other
    if divisor > 0:
        return traced(function(size, other))
    if type(divisor) is int and divisor < 0:
        negated = traced(function(torch.SymInt.__neg__(size), -other))
        return negated if "floordiv" in name else -negated
    return _at_value(size, name, other)


def _division(*, swapped: bool) -> Callable[..., Any]:
    """``n / m``: a float that lines compute; of what may be zero, by value: Python raises an error there."""

    def operation(self: TracedSize, other: Any) -> Any:
        operands = (other, self) if swapped else (self, other)
        if type(other) in (int, float, bool, TracedSize) and operands[1] != 0:
            return _float(operator.truediv, operands)
        return _at_value(self, "__rtruediv__" if swapped else "__truediv__", other)

    return operation


def _power(self: TracedSize, exponent: Any, modulus: Any = None) -> Any:
    """``n ** m``: products for small ints, a float that lines compute for a float, by value otherwise."""
    if type(exponent) is int and 0 < exponent <= _LARGEST_PRODUCT and modulus is None:
        return functools.reduce(operator.mul, (self,) * exponent)
    if type(exponent) is float and modulus is None and self > 0:
        return _float(operator.pow, (self, exponent))
    return _at_value(self, "__pow__", exponent, *([] if modulus is None else [modulus]))


def _quotient_and_rest(self: TracedSize, other: Any, quotient: str, rest: str) -> Any:
    """``divmod`` by an int, or of one."""
    if type(other) not in (int, bool, TracedSize):
        return _at_value(self, "__divmod__" if quotient == "__floordiv__" else "__rdivmod__", other)
    return _divided(self, quotient, other), _divided(self, rest, other)


def _float(function: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """The float that Python computes of sizes and numbers."""
    size = next(operand for operand in operands if type(operand) is TracedSize)
    return size.node.shape_env.sizes().floats.computed(function, operands)


def root_or_logarithm(recorder: Any, function: Callable[..., float], number: Any, *others: Any) -> Any:
    """The interception of functions of `math` that positive numbers have: a float that lines compute."""
    if type(number) is TracedSize and not others and number > 0:
        return _float(function, (number,))
    return function(number, *others)


def larger_or_smaller(recorder: Any, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The interception of `max` and `min`: of a size and an int it is a size, whichever of them that is in a call.

    Of other things it is what Python makes of them.
    """
    if len(args) != 2 or options or {type(arg) for arg in args} not in _SIZES:
        return function(*args, **options)
    size = args[0] if type(args[0]) is TracedSize else args[1]
    sizes = size.node.shape_env.sizes()
    if sizes is None or sizes.thread != threading.get_ident():
        return function(*args)
    return _unobserved(function.__name__, lambda _, *sizes: _extremum(function, *sizes))(size, *args)


_SIZES: Final = ({TracedSize}, {TracedSize, int})
_LARGEST: Final = max  # itself, also while it is replaced


def _extremum(function: Callable[..., Any], first: Any, second: Any) -> Any:
    largest = function is _LARGEST
    if _never_negative(first - second if largest else second - first):
        return first
    if _never_negative(second - first if largest else first - second):
        return second
    return traced(torch.sym_max(first, second) if largest else torch.sym_min(first, second))


def _never_negative(number: Any) -> bool:
    """By what is known of the symbols in it."""
    return least_of(from_fake(untraced(number))) >= 0


def _with_other_number(size: TracedSize, name: str, other: Any) -> Any:
    """What Python makes of an int and a float, by its value; tensors and other objects know themselves."""
    if isinstance(other, float | complex):
        return getattr(type(other)(int(size)), name)(other)
    return NotImplemented


def _by_value(name: str) -> Callable[..., Any]:
    return lambda self, *others: _at_value(self, name, *others)


def _at_value(size: TracedSize, name: str, *others: Any) -> Any:
    """What Python does with the number itself."""
    if others and isinstance(others[0], float | complex):
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
        **{name: getattr(TracedSize, name) for name in ("__neg__", "__pos__", "__int__", "__index__")},
        "__truediv__": _division(swapped=False),
        "__rtruediv__": _division(swapped=True),
        "__pow__": _power,
        "__divmod__": lambda self, other: _quotient_and_rest(self, other, "__floordiv__", "__mod__"),
        "__rdivmod__": lambda self, other: _quotient_and_rest(self, other, "__rfloordiv__", "__rmod__"),
    }
    for name, operation in operations.items():
        setattr(TracedSize, name, _unobserved(name, operation))
    for name in _THE_SAME:
        setattr(TracedSize, f"__{name}__", lambda self: +self)
    NUMBER_CLASSES[TracedSize] = "int"


_define()
