"""Guards on which object it is that a path leads to."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, ClassVar

from thunder_core.guards.guard import Guard, show
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs, Names, Source


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


def identity_guard(source: Source, value: Any) -> Guard:
    """The guard that ``source`` leads to ``value``, which the guard keeps alive only if it must."""
    try:
        return WeakIdentityGuard(source, weakref.ref(value), type(value).__name__)
    except TypeError:
        return IdentityGuard(source, value)


@dataclass(frozen=True, slots=True)
class NotAmongGuard(Guard):
    """None of some objects, which other guards keep alive."""

    members: tuple[Any, ...] = field(repr=False)
    kind: ClassVar[str] = "not among"

    def summary(self) -> str:
        return f"{len(self.members)} objects"

    def holds(self, value: Any) -> bool:
        return not any(value is member for member in self.members)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: is now one of the objects that a container holds"

    def failure(self, value: str, names: Names) -> str:
        identities = frozenset(map(id, self.members))
        return f"id({value}) in {names.constant(identities, 'members')}"

    def __hash__(self) -> int:
        return hash((self.source, *map(id, self.members)))


@dataclass(frozen=True, slots=True)
class DistinctGuard(Guard):
    """Paths that lead to different objects, all of them.

    Attributes:
        others: the paths after the first.
    """

    others: tuple[Source, ...]
    kind: ClassVar[str] = "distinct"

    @property
    def paths(self) -> tuple[Source, ...]:
        return self.others

    def summary(self) -> str:
        return ", ".join(source.describe() for source in self.others)

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        known: dict[int, Source] = {}
        for source in (self.source, *self.others):
            try:
                value = source.read(args, kwargs)
            except PATH_ERRORS as error:
                return f"{source.describe()}: is missing ({error})"
            other = known.setdefault(id(value), source)
            if other is not source:
                return f"{source.describe()}: is now the same object as {other.describe()}"
        return None

    def failure(self, value: str, names: Names) -> str:
        identities = ", ".join(f"id({path})" for path in (value, *(other.expression(names) for other in self.others)))
        return f"len({{{identities}}}) != {len(self.others) + 1}"


@dataclass(frozen=True, slots=True)
class SubclassGuard(Guard):
    """Whether a class is a subclass of an abstract one, where it can be registered at any time.

    Attributes:
        subclass: the class.
        expected: whether it is one.
    """

    subclass: type
    expected: bool
    kind: ClassVar[str] = "subclass"

    def summary(self) -> str:
        return f"{self.subclass.__qualname__} is {'one' if self.expected else 'none'}"

    def holds(self, value: Any) -> bool:
        return issubclass(self.subclass, value) is self.expected

    def reason(self, value: Any) -> str:
        change = "is no longer" if self.expected else "is now"
        return f"{self.source.describe()}: {self.subclass.__qualname__} {change} a subclass of it"

    def failure(self, value: str, names: Names) -> str:
        subclass = names.constant(self.subclass, self.subclass.__name__)
        return f"{'not ' if self.expected else ''}issubclass({subclass}, {value})"


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
    """The object is the one that another path leads to, or is not.

    Attributes:
        expected: the other path.
        same: which of both is claimed.
    """

    expected: Source
    same: bool = True

    @property
    def kind(self) -> str:
        return "alias" if self.same else "distinct"

    @property
    def paths(self) -> tuple[Source, ...]:
        return (self.expected,)

    def violation(self, args: Args, kwargs: Kwargs) -> str | None:
        try:
            same = self.source.read(args, kwargs) is self.expected.read(args, kwargs)
        except PATH_ERRORS as error:
            return f"{self.source.describe()}: is missing ({error})"
        return None if same is self.same else self.reason(None)

    def reason(self, value: Any) -> str:
        change = "no longer" if self.same else "now the same object as"
        return f"{self.source.describe()}: is {change} {self.expected.describe()}"

    def failure(self, value: str, names: Names) -> str:
        return f"{value} {'is not' if self.same else 'is'} {self.expected.expression(names)}"
