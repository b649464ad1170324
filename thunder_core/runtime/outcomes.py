"""Programs whose Python code reads values of tensors: each outcome has a cache entry, whose ops check the values.

The program for one branch of ``if x.sum() > 0`` has an op that raises `WrongGuess` if the sum selects the other branch.
The entry of the other branch then runs from the start. No effect is repeated, because writes to storages of the caller
and output of ``print`` follow the last check, and states that changed before it are restored
(`thunder_core.runtime.rollback`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from thunder_core.contract import AssumedValues
from thunder_core.errors import WrongGuess
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.guesses import with_symbols


def known_after(entry: CacheEntry, wrong: WrongGuess, inputs: tuple[Any, ...]) -> AssumedValues:
    """The values that a call reads, as far as they are known after a run of an entry ended with `WrongGuess`."""
    symbols = _symbols(entry, inputs)
    if entry.sizes is not None:
        symbols.update(zip(entry.sizes.defined, wrong.sizes, strict=False))
    before = [(guess.reader, with_symbols(guess.value, symbols)) for guess in entry.guesses[: wrong.position]]
    return AssumedValues((*before, (entry.guesses[wrong.position].reader, wrong.actual)), entry.traces_numbers)


def _symbols(entry: CacheEntry, inputs: tuple[Any, ...]) -> dict[str, int]:
    """The values of the symbols of an entry for these inputs."""
    return {} if entry.sizes is None else dict(zip(entry.sizes.hints, entry.symbols(inputs), strict=True))


def fits(entry: CacheEntry, known: AssumedValues, inputs: tuple[Any, ...]) -> bool:
    """Whether the first guesses of an entry are the known values, for a call with these inputs."""
    if entry.traces_numbers is not known.numbers or len(entry.guesses) < len(known.values):
        return False
    symbols: dict[str, int] | None = _symbols(entry, inputs)
    for guess, (reader, value) in zip(entry.guesses, known.values, strict=False):
        symbols = guess.with_defined_symbols(value, symbols or {}) if guess.reader == reader else None
        if symbols is None:
            return False
    return True


def entries_for(
    entries: Sequence[CacheEntry], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[CacheEntry, tuple[Any, ...]]]:
    """The entries with guesses whose guards hold for a call, each with its inputs."""
    for entry in entries:
        if entry.guesses:
            inputs = entry.prologue.function(args, kwargs)
            if inputs is not None:
                yield entry, inputs


_SWITCH_AFTER: Final = 2
"""The number of consecutive wrong predictions after which the prediction changes: values may alternate."""
_MAX_PREDICTIONS: Final = 4096
Key = tuple[CacheEntry, tuple[int, ...]]
"""The entry whose guards hold for a call, and the sizes of its inputs."""


class LikelyOutcomes:
    """Predicts the entry whose values match, from the last calls with the same guards and sizes.

    A wrong prediction costs a run up to the check that fails. Predictions are correct if the values are constant, or
    depend on the sizes alone.
    """

    def __init__(self) -> None:
        self._predictions: dict[Key, CacheEntry] = {}
        self._misses: dict[Key, int] = {}

    def entry(self, key: Key) -> CacheEntry:
        """The entry to run first: the prediction for these sizes, or else for all sizes."""
        return self._predictions.get(key) or self._predictions.get((key[0], ()), key[0])

    def learn(self, key: Key, entry: CacheEntry) -> None:
        """Record the entry that had the values of a call."""
        predicted = entry is self.entry(key)
        if predicted and not self._misses:
            return
        keys = {key, (key[0], ())}
        if predicted:
            for each in keys:
                self._misses.pop(each, None)
            return
        if max(len(self._predictions), len(self._misses)) >= _MAX_PREDICTIONS:  # sizes that differ in each call
            self._predictions.clear()
            self._misses.clear()
        for each in keys:
            self._misses[each] = self._misses.get(each, 0) + 1
            if self._misses[each] >= _SWITCH_AFTER:
                del self._misses[each]
                self._predictions[each] = entry
