"""Guards: what must hold of the object at the end of a path for a cache entry to be valid."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, ClassVar

from thunder_core.guards.plain import SINGLETON_TYPES, identical, literal
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs, Names, Source

_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class Guard:
    """Root of the family: a claim about the object that ``source`` leads to."""

    source: Source
    kind: ClassVar[str] = ""

    def holds(self, value: Any) -> bool:
        """True when the claim is true of ``value``."""
        raise NotImplementedError

    def reason(self, value: Any) -> str:
        """Why it does not hold of ``value``: ``module.scale: expected 2, got 3``."""
        raise NotImplementedError

    def failure(self, value: str, names: Names) -> str:
        """A Python condition that is true when the claim is false; ``value`` is a variable that holds the object."""
        raise NotImplementedError

    def describe(self) -> str:
        """The claim, for people: ``module.scale: value 2``."""
        return f"{self.source.describe()}: {self.kind} {self.summary()}".rstrip()

    def summary(self) -> str:
        """What is expected, in a few words; empty where the kind says it all."""
        return ""

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        """Why it does not hold of this call, or None when it does. Never raises for a missing path."""
        try:
            value = self.source.read(args, kwargs)
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        return None if self.holds(value) else self.reason(value)


def show(value: Any) -> str:
    """``value`` for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def type_name(kind: type) -> str:
    """A class for a message: bare for builtins, with its module otherwise."""
    return kind.__qualname__ if kind.__module__ in ("builtins", "torch") else f"{kind.__module__}.{kind.__qualname__}"


def _hint(kind: type) -> str:
    return "".join(character if character.isalnum() else "_" for character in kind.__qualname__.rpartition(".")[2])


@dataclass(frozen=True, slots=True)
class TypeGuard(Guard):
    """The object's exact class."""

    expected: type
    kind: ClassVar[str] = "type"

    def summary(self) -> str:
        return type_name(self.expected)

    def holds(self, value: Any) -> bool:
        return type(value) is self.expected

    def reason(self, value: Any) -> str:
        path = self.source.describe()
        return f"{path}: expected an object of type {type_name(self.expected)}, got {type_name(type(value))}"

    def failure(self, value: str, names: Names) -> str:
        return f"type({value}) is not {names.constant(self.expected, _hint(self.expected))}"


@dataclass(frozen=True, slots=True)
class PlainGuard(Guard):
    """Type and value of plain data, all the way down."""

    expected: Any
    kind: ClassVar[str] = "value"

    def summary(self) -> str:
        return show(self.expected)

    def holds(self, value: Any) -> bool:
        return identical(value, self.expected)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: expected {show(self.expected)}, got {show(value)}"

    def failure(self, value: str, names: Names) -> str:
        expected, kind = self.expected, type(self.expected)
        text = literal(expected)
        if kind in SINGLETON_TYPES:
            return f"{value} is not {text or names.constant(expected, str(expected).replace('torch.', ''))}"
        if text is not None and kind in (int, str, bytes):
            return f"type({value}) is not {kind.__name__} or {value} != {text}"
        if text is not None and kind is float and expected != 0:
            return f"type({value}) is not float or {value} != {text}"
        same = names.constant(identical, "identical")
        constant = names.constant(expected, "expected")
        if isinstance(expected, list | dict | set):  # may change in place: being the same object proves nothing
            return f"not {same}({value}, {text or constant})"
        return f"{value} is not {constant} and not {same}({value}, {text or constant})"


@dataclass(frozen=True, slots=True)
class EqualGuard(Guard):
    """Type and ``==``, for immutable objects with an equality of their own."""

    expected: Any
    kind: ClassVar[str] = "equality"

    def holds(self, value: Any) -> bool:
        return type(value) is type(self.expected) and bool(value == self.expected)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: expected {show(self.expected)}, got {show(value)}"

    def failure(self, value: str, names: Names) -> str:
        kind = names.constant(type(self.expected), _hint(type(self.expected)))
        return f"type({value}) is not {kind} or {value} != {names.constant(self.expected, 'expected')}"


@dataclass(frozen=True, slots=True)
class IdentityGuard(Guard):
    """The very same object, held strongly: for classes, builtins, Python modules."""

    expected: Any
    kind: ClassVar[str] = "identity"

    def holds(self, value: Any) -> bool:
        return value is self.expected

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: expected {show(self.expected)}, got {show(value)}"

    def failure(self, value: str, names: Names) -> str:
        name = getattr(self.expected, "__name__", None) or type(self.expected).__name__
        return f"{value} is not {names.constant(self.expected, str(name))}"

    def __hash__(self) -> int:
        return hash((self.source, id(self.expected)))


@dataclass(frozen=True, slots=True)
class WeakIdentityGuard(Guard):
    """The very same object, which the guard does not keep alive."""

    expected: weakref.ref[Any]
    name: str = field(compare=False)
    kind: ClassVar[str] = "identity"

    def holds(self, value: Any) -> bool:
        return value is not None and value is self.expected()

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: is another object than before ({self.name})"

    def failure(self, value: str, names: Names) -> str:
        # a reference to an object that is gone answers None
        return f"{value} is None or {value} is not {names.constant(self.expected, 'the_' + self.name)}()"


@dataclass(frozen=True, slots=True)
class CodeGuard(Guard):
    """A Python function with this code; which function object it is does not matter."""

    expected: Any
    kind: ClassVar[str] = "function"

    def holds(self, value: Any) -> bool:
        return getattr(value, "__code__", None) is self.expected

    def reason(self, value: Any) -> str:
        code = getattr(value, "__code__", None)
        got = show(value) if code is None else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        return f"{self.source.describe()}: expected the function {self.expected.co_qualname}, got {got}"

    def failure(self, value: str, names: Names) -> str:
        return f"{value}.__code__ is not {names.constant(self.expected, 'code_of_' + self.expected.co_name)}"

    def __hash__(self) -> int:
        return hash((self.source, id(self.expected)))


@dataclass(frozen=True, slots=True)
class SameGuard(Guard):
    """The object is the one that another path leads to."""

    expected: Source
    kind: ClassVar[str] = "alias"

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        try:
            same = self.source.read(args, kwargs) is self.expected.read(args, kwargs)
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        return None if same else self.reason(None)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: is no longer {self.expected.describe()}"

    def failure(self, value: str, names: Names) -> str:
        return f"{value} is not {self.expected.expression(names)}"


@dataclass(frozen=True, slots=True)
class DistinctGuard(Guard):
    """The object is not the one that another path leads to."""

    expected: Source
    kind: ClassVar[str] = "distinct"

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        try:
            same = self.source.read(args, kwargs) is self.expected.read(args, kwargs)
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        return self.reason(None) if same else None

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: is now the same object as {self.expected.describe()}"

    def failure(self, value: str, names: Names) -> str:
        return f"{value} is {self.expected.expression(names)}"
