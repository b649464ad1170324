"""Guards: what must hold of the object at the end of a path for a cache entry to be valid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from thunder_core.guards.plain import SINGLETON_TYPES, identical, literal
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs, Names, Source

_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class Guard:
    """Root of the family: a claim about the object that ``source`` leads to."""

    source: Source

    @property
    def kind(self) -> str:
        """What is claimed, in a word: a class variable of most guards."""
        return ""

    @property
    def paths(self) -> tuple[Source, ...]:
        """Other paths that the claim is about."""
        return ()

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

    def remedy(self) -> str:
        """How to change a program that is compiled again and again because this does not hold."""
        return "make it the same at each call, or store what changes in a tensor"

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        """Why it does not hold of this call, or None when it does. Never raises for a missing path."""
        try:
            value = self.source.read(args, kwargs)
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        return None if self.holds(value) else self.reason(value)


def show(value: Any) -> str:
    """``value`` for a message, shortened; objects whose ``repr`` fails are shown by their class."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  the user's code may raise anything
        text = object.__repr__(value)
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

    def remedy(self) -> str:
        if isinstance(self.expected, int | float | complex) and not isinstance(self.expected, bool):
            return "pass it, or store it, as a tensor: torch.tensor(number); a compiled program is for one number"
        return Guard.remedy(self)

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
