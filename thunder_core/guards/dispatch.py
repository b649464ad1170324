"""Find the cache entry that serves a call, at a cost that does not grow with the number of entries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from thunder_core.guards.global_state import READERS
from thunder_core.guards.guard import Change, Key
from thunder_core.guards.prologue import Prologue
from thunder_core.guards.prologue_names import PrologueNames
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs
from thunder_core.ir.program import compile_source

_MOST_KEYS = 8
_UNKNOWN = object()


class HasPrologue(Protocol):
    """A cache entry, as far as dispatch is concerned."""

    @property
    def prologue(self) -> Prologue: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """An entry with what it expects, by key; the first expectation of a key counts."""

    entry: Any
    check: Callable[[Args, Kwargs], tuple[Any, ...] | None]
    expected: dict[Key, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One immutable state of the dispatcher; readers take the whole.

    Attributes:
        candidates: all entries, oldest first.
        keys: what entries are looked up by.
        read: ``read(args, kwargs)`` gives what a call has for the keys; None where there are none.
        buckets: candidates by what they expect, newest first, followed in each bucket by those in ``open``.
        open: candidates that expect nothing of one of the keys, newest first.
    """

    candidates: tuple[_Candidate, ...] = ()
    keys: tuple[Key, ...] = ()
    read: Callable[[Args, Kwargs], Any] | None = None
    buckets: dict[Any, tuple[_Candidate, ...]] = field(default_factory=dict)
    open: tuple[_Candidate, ...] = ()


class Dispatcher:
    """Finds entries. Reading takes no lock; adding copies.

    Entries are told apart by a few keys, chosen because existing entries expect different things of them (a shape, an
    integer, a module's attribute, gradient mode). The guards of the entries that are looked up by them are then checked
    in full, so keys decide about cost only.
    """

    def __init__(self) -> None:
        self._table = _Table()
        self._lock = threading.Lock()

    @property
    def entries(self) -> tuple[Any, ...]:
        """All entries, oldest first."""
        return tuple(candidate.entry for candidate in self._table.candidates)

    @property
    def keys(self) -> tuple[Key, ...]:
        """What entries are looked up by now."""
        return self._table.keys

    def find(self, args: Args, kwargs: Kwargs) -> tuple[Any, tuple[Any, ...]] | None:
        """The entry that serves the call and its computation's inputs; None when there is none."""
        table = self._table
        candidates = table.candidates if table.read is None else _choose(table, args, kwargs)
        for candidate in candidates:
            inputs = candidate.check(args, kwargs)
            if inputs is not None:
                return candidate.entry, inputs
        return None

    def add(self, entry: HasPrologue) -> None:
        """Make an entry known."""
        with self._lock:
            self._table = _extend(self._table, entry)

    def remove(self, entry: HasPrologue) -> None:
        """Forget an entry."""
        with self._lock:
            kept = [candidate.entry for candidate in self._table.candidates if candidate.entry is not entry]
            table = _Table()
            for other in kept:
                table = _extend(table, other)
            self._table = table

    def change(self, args: Args, kwargs: Kwargs) -> Change | None:
        """Why the newest entry does not serve the call; None if there are no entries."""
        changes = (candidate.entry.prologue.change(args, kwargs) for candidate in reversed(self._table.candidates))
        return next((change for change in changes if change is not None), None)


def _choose(table: _Table, args: Args, kwargs: Kwargs) -> Sequence[_Candidate]:
    assert table.read is not None
    try:
        return table.buckets.get(table.read(args, kwargs), table.open)
    except PATH_ERRORS:  # an unhashable value, or a path that only some entries have
        return table.candidates


def _extend(table: _Table, entry: HasPrologue) -> _Table:
    expected: dict[Key, Any] = {}
    for key, value in dispatch_keys(entry.prologue):
        expected.setdefault(key, value)
    candidate = _Candidate(entry, entry.prologue.function, expected)
    keys = list(table.keys)
    for other in table.candidates:
        if len(keys) < _MOST_KEYS and _expect_the_same(candidate, other, keys):
            difference = _first_difference(candidate, other)
            if difference is not None:
                keys.append(difference)
    return _make_table((*table.candidates, candidate), tuple(keys), table)


def _expect_the_same(one: _Candidate, other: _Candidate, keys: Sequence[Key]) -> bool:
    return all(one.expected.get(key, _UNKNOWN) == other.expected.get(key, _UNKNOWN) for key in keys)


def _first_difference(one: _Candidate, other: _Candidate) -> Key | None:
    for key, value in one.expected.items():
        expected = other.expected.get(key, _UNKNOWN)
        if expected is not _UNKNOWN and expected != value:
            return key
    return None


def _make_table(candidates: tuple[_Candidate, ...], keys: tuple[Key, ...], before: _Table) -> _Table:
    newest_first = candidates[::-1]
    if not keys:
        return _Table(candidates)
    read = before.read if keys == before.keys else _compile_keys(keys)
    grouped: dict[Any, list[_Candidate]] = {}
    left_open = []
    for candidate in newest_first:
        expected = tuple(candidate.expected.get(key, _UNKNOWN) for key in keys)
        if any(value is _UNKNOWN for value in expected):
            left_open.append(candidate)
        else:
            grouped.setdefault(expected if len(expected) > 1 else expected[0], []).append(candidate)
    buckets = {value: (*members, *left_open) for value, members in grouped.items()}
    return _Table(candidates, keys, read, buckets, tuple(left_open))


_CALL = Key(None, "len(args), tuple(kwargs)")


def dispatch_keys(prologue: Prologue) -> Iterator[tuple[Key, Any]]:
    """What an entry can be looked up by, with what it expects; what is cheapest to read comes first."""
    yield _CALL, (prologue.shape.positional, prologue.shape.keywords)
    for guard in prologue.guards:
        if guard.source.parent is None:
            yield from guard.keys()
    for name, value in prologue.state.values.items():
        yield Key(None, name), value
    for guard in prologue.guards:
        if guard.source.parent is not None:
            yield from guard.keys()


def _compile_keys(keys: Sequence[Key]) -> Callable[[Args, Kwargs], Any]:
    names = PrologueNames("    ")
    parts = [_expression(key, names) for key in keys]
    parts = [f"({part})" if "," in part else part for part in parts]
    returned = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    source = "\n".join(["def key(args, kwargs):", *names.lines, f"    return {returned}"]) + "\n"
    return compile_source(source, "key", names.namespace, title="key")


def _expression(key: Key, names: PrologueNames) -> str:
    if key.source is not None:
        return key.expression.format(value=key.source.expression(names))
    if key is _CALL:
        return key.expression
    return f"{names.constant(READERS[key.expression], key.expression)}()"
