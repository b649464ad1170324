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
        """The entry to run first: that for the sizes, or else that of the last calls of any size."""
        return self._first.get(key) or self._first.get((key[0], ()), key[0])

    def learn(self, key: Key, entry: Entry) -> None:
        """Take note of the entry that had the values of a call."""
        likely = entry is self.entry(key)
        if likely and not self._missed:
            return
        keys = {key, (key[0], ())}
        if likely:
            for one in keys:
                self._missed.pop(one, None)
            return
        if len(self._first) >= _MOST or len(self._missed) >= _MOST:  # a number that is another in each call
            self._first.clear()
            self._missed.clear()
        for one in keys:
            self._missed[one] = self._missed.get(one, 0) + 1
            if self._missed[one] >= _PATIENCE:
                del self._missed[one]
                self._first[one] = entry
