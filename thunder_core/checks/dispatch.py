"""The dispatcher: it finds the cache entry that is valid for a call, in a time independent of the number of entries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from thunder_core.checks.global_state import READERS
from thunder_core.checks.guard import DispatchKey, Miss
from thunder_core.checks.prologue import Prologue
from thunder_core.checks.prologue_writer import PrologueNames
from thunder_core.checks.source import PATH_ERRORS, Args, Kwargs
from thunder_core.forking import renew_in_child
from thunder_core.ir.program import compile_source

_MOST_KEYS = 8
_UNKNOWN = object()


class HasPrologue(Protocol):
    """A cache entry."""

    @property
    def prologue(self) -> Prologue: ...


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A cache entry with the function of its prologue."""

    entry: Any
    check: Callable[[Args, Kwargs], tuple[Any, ...] | None]

    @cached_property
    def expected(self) -> dict[DispatchKey, Any]:
        """The expected values of its dispatch keys, the first of each key; a single entry needs none."""
        expected: dict[DispatchKey, Any] = {}
        for key, value in _dispatch_keys(self.entry.prologue):
            expected.setdefault(key, value)
        return expected


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One immutable state of the dispatcher.

    Attributes:
        candidates: all entries, oldest first.
        keys: the dispatch keys in use.
        read: ``read(args, kwargs)`` returns the values of the keys in a call; None if there are no keys.
        buckets: candidates by the expected values of the keys, newest first, followed by those in ``open``.
        open: candidates that do not have all of the keys, newest first.
    """

    candidates: tuple[_Candidate, ...] = ()
    keys: tuple[DispatchKey, ...] = ()
    read: Callable[[Args, Kwargs], Any] | None = None
    buckets: dict[Any, tuple[_Candidate, ...]] = field(default_factory=dict)
    open: tuple[_Candidate, ...] = ()


class Dispatcher:
    """A collection of cache entries. `find` takes no lock; `add` and `remove` replace the immutable table.

    The dispatcher selects entries by a few keys for which entries expect different values: a shape, an integer, an
    attribute of a module, gradient mode. It checks all guards of the selected entries, so keys affect only the cost.
    """

    def __init__(self) -> None:
        self._table = _Table()
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    @property
    def entries(self) -> tuple[Any, ...]:
        """All entries, oldest first."""
        return tuple(candidate.entry for candidate in self._table.candidates)

    @property
    def keys(self) -> tuple[DispatchKey, ...]:
        """The dispatch keys in use."""
        return self._table.keys

    def find(self, args: Args, kwargs: Kwargs) -> tuple[Any, tuple[Any, ...]] | None:
        """The entry that is valid for a call, and the inputs of its computation; None if there is none."""
        table = self._table
        candidates = table.candidates if table.read is None else _choose(table, args, kwargs)
        for candidate in candidates:
            inputs = candidate.check(args, kwargs)
            if inputs is not None:
                return candidate.entry, inputs
        return None

    def add(self, entry: HasPrologue) -> None:
        """Add an entry."""
        with self._lock:
            self._table = _extend(self._table, entry)

    def remove(self, entry: HasPrologue) -> None:
        """Remove an entry."""
        with self._lock:
            others = [candidate.entry for candidate in self._table.candidates if candidate.entry is not entry]
            table = _Table()
            for other in others:
                table = _extend(table, other)
            self._table = table

    def miss(self, args: Args, kwargs: Kwargs) -> Miss | None:
        """Why the newest entry is not valid for a call; None if there are no entries."""
        misses = (candidate.entry.prologue.miss(args, kwargs) for candidate in reversed(self._table.candidates))
        return next((miss for miss in misses if miss is not None), None)


def _choose(table: _Table, args: Args, kwargs: Kwargs) -> Sequence[_Candidate]:
    assert table.read is not None
    try:
        return table.buckets.get(table.read(args, kwargs), table.open)
    except PATH_ERRORS:  # an unhashable value, or a path that does not exist in this call
        return table.candidates


def _extend(table: _Table, entry: HasPrologue) -> _Table:
    candidate = _Candidate(entry, entry.prologue.function)
    keys = list(table.keys)
    for other in table.candidates:
        if len(keys) < _MOST_KEYS and _expect_the_same(candidate, other, keys):
            difference = _first_difference(candidate, other)
            if difference is not None:
                keys.append(difference)
    return _make_table((*table.candidates, candidate), tuple(keys), table)


def _expect_the_same(one: _Candidate, other: _Candidate, keys: Sequence[DispatchKey]) -> bool:
    return all(one.expected.get(key, _UNKNOWN) == other.expected.get(key, _UNKNOWN) for key in keys)


def _first_difference(one: _Candidate, other: _Candidate) -> DispatchKey | None:
    for key, value in one.expected.items():
        expected = other.expected.get(key, _UNKNOWN)
        if expected is not _UNKNOWN and expected != value:
            return key
    return None


def _make_table(candidates: tuple[_Candidate, ...], keys: tuple[DispatchKey, ...], before: _Table) -> _Table:
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


_CALL = DispatchKey(None, "len(args), tuple(kwargs)")


def _dispatch_keys(prologue: Prologue) -> Iterator[tuple[DispatchKey, Any]]:
    """The dispatch keys of an entry with their expected values, the cheapest first."""
    yield _CALL, (prologue.shape.positional, prologue.shape.keywords)
    for guard in prologue.guards:
        if guard.source.parent is None:
            yield from guard.keys()
    for name, value in prologue.state.values.items():
        yield DispatchKey(None, name), value
    for guard in prologue.guards:
        if guard.source.parent is not None:
            yield from guard.keys()


def _compile_keys(keys: Sequence[DispatchKey]) -> Callable[[Args, Kwargs], Any]:
    names = PrologueNames("    ")
    parts = [_expression(key, names) for key in keys]
    parts = [f"({part})" if "," in part else part for part in parts]
    returned = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    source = "\n".join(["def key(args, kwargs):", *names.lines, f"    return {returned}"]) + "\n"
    return compile_source(source, "key", names.namespace, title="key")


def _expression(key: DispatchKey, names: PrologueNames) -> str:
    if key.source is not None:
        return key.expression.format(value=key.source.expression(names))
    if key is _CALL:
        return key.expression
    return f"{names.constant(READERS[key.expression], key.expression)}()"
