"""Find the cache entry that serves a call, at a cost that does not grow with the number of entries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from thunder_core.guards.change import Change
from thunder_core.guards.prologue import Prologue
from thunder_core.guards.prologue_names import PrologueNames
from thunder_core.guards.questions import Question, answers
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs
from thunder_core.ir.program import compile_source

_MOST_QUESTIONS = 8
_UNASKABLE = object()


class HasPrologue(Protocol):
    """A cache entry, as far as dispatch is concerned."""

    @property
    def prologue(self) -> Prologue: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """An entry with what it expects, by question; the first answer to a question counts."""

    entry: Any
    check: Callable[[Args, Kwargs], tuple[Any, ...] | None]
    expected: dict[Question, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """One immutable state of the dispatcher; readers take the whole.

    Attributes:
        candidates: all entries, oldest first.
        questions: what the key consists of.
        key: ``key(args, kwargs)``, the answers to the questions; None when they cannot be asked.
        buckets: candidates by key, newest first, followed in each bucket by those that leave a question open.
        open: candidates that leave a question open, newest first.
    """

    candidates: tuple[_Candidate, ...] = ()
    questions: tuple[Question, ...] = ()
    key: Callable[[Args, Kwargs], Any] | None = None
    buckets: dict[Any, tuple[_Candidate, ...]] = field(default_factory=dict)
    open: tuple[_Candidate, ...] = ()


class Dispatcher:
    """Finds entries. Reading takes no lock; adding copies.

    Entries are told apart by a key: the answers to a few questions about the call, chosen because existing entries
    expect different answers (a shape, an integer, a module's attribute, gradient mode). The guards of the entries found
    by the key are then checked in full, so the key decides about cost only.
    """

    def __init__(self) -> None:
        self._table = _Table()
        self._lock = threading.Lock()

    @property
    def entries(self) -> tuple[Any, ...]:
        """All entries, oldest first."""
        return tuple(candidate.entry for candidate in self._table.candidates)

    @property
    def questions(self) -> tuple[Question, ...]:
        """What the key consists of now."""
        return self._table.questions

    def find(self, args: Args, kwargs: Kwargs) -> tuple[Any, tuple[Any, ...]] | None:
        """The entry that serves the call and its computation's inputs; None when there is none."""
        table = self._table
        candidates = table.candidates if table.key is None else _choose(table, args, kwargs)
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
    assert table.key is not None
    try:
        return table.buckets.get(table.key(args, kwargs), table.open)
    except PATH_ERRORS:  # unhashable answer, or a path that only some entries have
        return table.candidates


def _extend(table: _Table, entry: HasPrologue) -> _Table:
    expected: dict[Question, Any] = {}
    for question, answer in answers(entry.prologue):
        expected.setdefault(question, answer)
    candidate = _Candidate(entry, entry.prologue.function, expected)
    questions = list(table.questions)
    for other in table.candidates:
        if len(questions) < _MOST_QUESTIONS and _same_answers(candidate, other, questions):
            difference = _first_difference(candidate, other)
            if difference is not None:
                questions.append(difference)
    return _make_table((*table.candidates, candidate), tuple(questions), table)


def _same_answers(one: _Candidate, other: _Candidate, questions: Sequence[Question]) -> bool:
    return all(
        one.expected.get(question, _UNASKABLE) == other.expected.get(question, _UNASKABLE) for question in questions
    )


def _first_difference(one: _Candidate, other: _Candidate) -> Question | None:
    for question, answer in one.expected.items():
        expected = other.expected.get(question, _UNASKABLE)
        if expected is not _UNASKABLE and expected != answer:
            return question
    return None


def _make_table(candidates: tuple[_Candidate, ...], questions: tuple[Question, ...], before: _Table) -> _Table:
    newest_first = candidates[::-1]
    if not questions:
        return _Table(candidates)
    key = before.key if questions == before.questions else _compile_key(questions)
    grouped: dict[Any, list[_Candidate]] = {}
    left_open = []
    for candidate in newest_first:
        found = tuple(candidate.expected.get(question, _UNASKABLE) for question in questions)
        if any(answer is _UNASKABLE for answer in found):
            left_open.append(candidate)
        else:
            grouped.setdefault(found if len(found) > 1 else found[0], []).append(candidate)
    buckets = {answer: (*members, *left_open) for answer, members in grouped.items()}
    return _Table(candidates, questions, key, buckets, tuple(left_open))


def _compile_key(questions: Sequence[Question]) -> Callable[[Args, Kwargs], Any]:
    names = PrologueNames("    ")
    parts = [question.expression(names) for question in questions]
    parts = [f"({part})" if "," in part else part for part in parts]
    returned = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    source = "\n".join(["def key(args, kwargs):", *names.lines, f"    return {returned}"]) + "\n"
    return compile_source(source, "key", names.namespace, title="key")
