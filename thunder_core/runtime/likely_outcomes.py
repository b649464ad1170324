"""Which program runs first for a call whose values are not known yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thunder_core.runtime.entry import Entry

_PATIENCE: Final = 2
"""How many calls in a row have to run another entry before that is the first: values may alternate."""
_MOST: Final = 4096

Key = tuple["Entry", tuple[int, ...]]


class LikelyOutcomes:
    """Remembers, for the entry that guards lead to and for its sizes, which one had the values of the last calls.

    A wrong guess costs a run up to the check: values that stay the same, or depend on sizes alone, should not pay it
    in each call.
    """

    def __init__(self) -> None:
        self._first: dict[Key, Entry] = {}
        self._missed: dict[Key, int] = {}

    def entry(self, key: Key) -> Entry:
        """The entry to run first."""
        return self._first.get(key, key[0])

    def learn(self, key: Key, entry: Entry) -> None:
        """Take note of the entry that had the values of a call."""
        if entry is self._first.get(key, key[0]):
            if self._missed:
                self._missed.pop(key, None)
            return
        missed = self._missed.get(key, 0) + 1
        if missed < _PATIENCE:
            self._missed[key] = missed
            return
        self._missed.pop(key, None)
        if len(self._first) >= _MOST:
            self._first.clear()
        self._first[key] = entry
