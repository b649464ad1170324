"""Guards on what objects consist of: lengths, keys, absent attributes, hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from thunder_core.guards.guard import Guard, show
from thunder_core.guards.plain import identical, is_plain, key_text, literal
from thunder_core.guards.source import Names, Source, dictionary_expression
from thunder_core.guards.stored_content import stored_items


@dataclass(frozen=True, slots=True)
class LengthGuard(Guard):
    """How many items a container has.

    Attributes:
        stored: its class says something else than what it holds; the latter counts.
    """

    expected: int
    stored: bool = False
    kind: ClassVar[str] = "length"

    def holds(self, value: Any) -> bool:
        return (len(stored_items(value)) if self.stored else len(value)) == self.expected

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: expected {self.expected} items, got {len(value)}"

    def failure(self, value: str, names: Names) -> str:
        held = f"{names.constant(stored_items, 'stored_items')}({value})" if self.stored else value
        return f"len({held}) != {self.expected}"


@dataclass(frozen=True, slots=True)
class KeysGuard(Guard):
    """The keys of a dictionary.

    Attributes:
        dictionary: the attribute of the object that holds it, if the object is not the dictionary itself.
        stored: its class says something else than what it holds; the latter counts.
        ordered: their order counts.
    """

    expected: tuple[Any, ...]
    dictionary: str = ""
    stored: bool = False
    ordered: bool = True
    kind: ClassVar[str] = "keys"

    def _keys(self, value: Any) -> tuple[Any, ...]:
        if self.stored:
            return stored_items(value)
        return tuple(getattr(value, self.dictionary) if self.dictionary else value)

    def holds(self, value: Any) -> bool:
        if not self.ordered:
            return set(self._keys(value)) == set(self.expected)
        return identical(self._keys(value), self.expected)

    def reason(self, value: Any) -> str:
        path = self.source.describe() + (f".{self.dictionary}" if self.dictionary else "")
        return f"{path}: expected the keys {show(self.expected)}, got {show(self._keys(value))}"

    def failure(self, value: str, names: Names) -> str:
        if not self.ordered:
            own = dictionary_expression(value, self.dictionary, names)
            return f"{own}.keys() != {names.constant(frozenset(self.expected), 'attributes')}"
        if self.stored:
            keys = f"{names.constant(stored_items, 'stored_items')}({value})"
            return f"not {names.constant(identical, 'identical')}({keys}, {names.constant(self.expected, 'keys')})"
        if not self.expected:
            return dictionary_expression(value, self.dictionary, names) if self.dictionary else value
        keys = f"tuple({dictionary_expression(value, self.dictionary, names) if self.dictionary else value})"
        if all(type(key) is str for key in self.expected):
            return f"{keys} != {literal(self.expected) or names.constant(self.expected, 'keys')}"
        return f"not {names.constant(identical, 'identical')}({keys}, {names.constant(self.expected, 'keys')})"


@dataclass(frozen=True, slots=True)
class ClassNamesGuard(Guard):
    """The names that a class defines itself, but for those that Python gives it."""

    expected: frozenset[str]
    kind: ClassVar[str] = "names"

    @staticmethod
    def names_of(value: Any) -> frozenset[str]:
        """The names of a class."""
        return frozenset(name for name in vars(value) if not name.startswith("__"))

    def holds(self, value: Any) -> bool:
        return self.names_of(value) == self.expected

    def reason(self, value: Any) -> str:
        changed = show(tuple(sorted(self.names_of(value) ^ self.expected)))
        return f"{self.source.describe()}: has other attributes than before: {changed}"

    def failure(self, value: str, names: Names) -> str:
        return f"{names.constant(self.names_of, 'names_of')}({value}) != {names.constant(self.expected, 'names')}"


@dataclass(frozen=True, slots=True)
class MembersGuard(Guard):
    """The items of a set, in the order in which they come: plain values by value, objects by identity."""

    expected: tuple[Any, ...]
    kind: ClassVar[str] = "members"

    def holds(self, value: Any) -> bool:
        return isinstance(value, set | frozenset) and same_members(stored_items(value), self.expected)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: expected the items {show(self.expected)}, got {show(value)}"

    def failure(self, value: str, names: Names) -> str:
        same = names.constant(same_members, "same_members")
        items = f"{names.constant(stored_items, 'stored_items')}({value})"
        return f"not {same}({items}, {names.constant(self.expected, 'expected')})"

    def __hash__(self) -> int:
        return hash((self.source, *map(id, self.expected)))


def same_members(items: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """True for the very same objects, and plain values that are identical."""
    return len(items) == len(expected) and all(
        item is other or (is_plain(other) and identical(item, other))
        for item, other in zip(items, expected, strict=True)
    )


@dataclass(frozen=True, slots=True)
class AbsentGuard(Guard):
    """The object has no attribute of its own by that name in the listed dictionaries."""

    name: str
    dictionaries: tuple[str, ...] = ("__dict__",)
    kind: ClassVar[str] = "absent"

    def holds(self, value: Any) -> bool:
        return not any(self.name in getattr(value, dictionary) for dictionary in self.dictionaries)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}.{self.name}: did not exist, now it does"

    def failure(self, value: str, names: Names) -> str:
        held = (dictionary_expression(value, each, names) for each in self.dictionaries)
        return " or ".join(f"{self.name!r} in {each}" for each in held)


@dataclass(frozen=True, slots=True)
class NoItemGuard(Guard):
    """A dictionary without a key."""

    key: Any
    kind: ClassVar[str] = "absent"

    def holds(self, value: Any) -> bool:
        return self.key not in value

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}[{key_text(self.key)}]: did not exist, now it does"

    def failure(self, value: str, names: Names) -> str:
        return f"{literal(self.key) or names.constant(self.key, 'key')} in {value}"


@dataclass(frozen=True, slots=True)
class NotShadowedGuard(Guard):
    """The global variables of a Python module, among which are none with the names of these builtins."""

    names: frozenset[str]
    kind: ClassVar[str] = "not shadowed"

    def summary(self) -> str:
        return ", ".join(sorted(self.names))

    def holds(self, value: Any) -> bool:
        return bool(value.keys().isdisjoint(self.names))

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: {', '.join(sorted(value.keys() & self.names))} is no longer the builtin"

    def failure(self, value: str, names: Names) -> str:
        return f"not {value}.keys().isdisjoint({names.constant(self.names, 'builtin_names')})"


@dataclass(frozen=True, slots=True)
class CachedResultsGuard(Guard):
    """A function of ``functools.lru_cache`` whose results were not cleared: it has computed at least as many.

    Attributes:
        expected: the number of misses.
    """

    expected: int
    kind: ClassVar[str] = "cached results"

    def holds(self, value: Any) -> bool:
        return bool(value.cache_info().misses >= self.expected)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: its cache was cleared"

    def failure(self, value: str, names: Names) -> str:
        return f"{value}.cache_info()[1] < {self.expected}"


@dataclass(frozen=True, slots=True)
class NoAttributeGuard(Guard):
    """``hasattr`` says no."""

    name: str
    kind: ClassVar[str] = "absent"

    def holds(self, value: Any) -> bool:
        return not hasattr(value, self.name)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}.{self.name}: did not exist, now it does"

    def failure(self, value: str, names: Names) -> str:
        return f"hasattr({value}, {self.name!r})"


@dataclass(frozen=True, slots=True)
class ArrayGuard(Guard):
    """A NumPy array: element type and shape, and its bytes unless it is an input of the compiled program."""

    expected: tuple[str, tuple[int, ...]]
    content: bytes | None = None
    kind: ClassVar[str] = "array"

    @classmethod
    def of(cls, source: Source, array: Any, *, content: bool) -> ArrayGuard:
        """The guard that ``array`` fulfils now."""
        return cls(source, (array.dtype.str, array.shape), array.tobytes() if content else None)

    def holds(self, value: Any) -> bool:
        described = (getattr(getattr(value, "dtype", None), "str", ""), getattr(value, "shape", None))
        return described == self.expected and (self.content is None or value.tobytes() == self.content)

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: expected the same array as before of {self.expected}, got {show(value)}"

    def failure(self, value: str, names: Names) -> str:
        return f"not {names.constant(self.holds, 'same_array')}({value})"


@dataclass(frozen=True, slots=True)
class NoHooksGuard(Guard):
    """A module without forward or backward hooks and with the ``forward`` of its class."""

    kind: ClassVar[str] = "hooks"
    dictionaries: ClassVar[tuple[str, ...]] = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_backward_hooks",
        "_backward_pre_hooks",
    )

    def holds(self, value: Any) -> bool:
        return "forward" not in value.__dict__ and not any(getattr(value, name) for name in self.dictionaries)

    def reason(self, value: Any) -> str:
        path = self.source.describe()
        if "forward" in value.__dict__:
            return f"{path}.forward: was replaced on the module"
        found = next(name for name in self.dictionaries if getattr(value, name))
        return f"{path}.{found}: a hook was registered"

    def failure(self, value: str, names: Names) -> str:
        own = dictionary_expression(value, "__dict__", names)
        checks = [f"'forward' in {own}", *(f"{own}[{name!r}]" for name in self.dictionaries)]
        return " or ".join(checks)
