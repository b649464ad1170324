"""Comparison of the times of two programs, in alternating blocks of calls."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, comb
from typing import Final

from thunder_plugin_tuning.clock import Clock

Call = Callable[[], object]

LEAST_GAIN: Final = 0.01
"""The share of the time that a program must save to count as faster."""
LEAST_ROUNDS: Final = 8
"""The fewest rounds for which the interval of the median has 99 % confidence."""
_MOST_ROUNDS: Final = 30
_BLOCK: Final = 0.005  # seconds of a block, unless one call takes longer
_MOST_CALLS: Final = 1000  # of a block
_WARM_UP: Final = 3  # calls of each program
_DOUBT: Final = 0.01  # the probability that the median is outside of the interval


@dataclass(frozen=True)
class Comparison:
    """The times of two programs.

    Attributes:
        before, after: seconds of a call of each, medians.
        ratio: the median of the ratios of the rounds, time after by time before.
        low, high: the interval of this median, with 99 % confidence.
        rounds: number of rounds.
    """

    before: float
    after: float
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def faster(self) -> bool:
        """Whether the second program is faster: by at least `LEAST_GAIN`, and beyond the noise."""
        return self.high < 1 and self.ratio <= 1 - LEAST_GAIN

    @property
    def slower(self) -> bool:
        """Whether the second program is slower, beyond the noise."""
        return self.low > 1


def compare(clock: Clock, before: Call, after: Call, deadline: float | None = None) -> Comparison | None:
    """Time two programs in rounds: a block of calls of one, then as many calls of the other, in alternating order.

    Stops when the interval of the median decides, and after 30 rounds. No garbage is collected meanwhile.

    Args:
        clock: measures the blocks.
        before, after: a call of each program.
        deadline: a time of the clock after which no round starts.

    Returns:
        None if the deadline passed before `LEAST_ROUNDS` rounds.
    """
    with _without_garbage_collection():
        count = _calls_of_block(clock, before, after)
        times: tuple[list[float], list[float]] = ([], [])
        while len(times[0]) < _MOST_ROUNDS:
            if deadline is not None and clock.now() >= deadline:
                break
            order = (0, 1) if len(times[0]) % 2 == 0 else (1, 0)
            for index in order:
                times[index].append(clock.seconds((before, after)[index], count) / count)
            if len(times[0]) >= LEAST_ROUNDS:
                result = _comparison(*times)
                if result.faster or result.low > 1 - LEAST_GAIN:
                    break
    return _comparison(*times) if len(times[0]) >= LEAST_ROUNDS else None


def _comparison(before: Sequence[float], after: Sequence[float]) -> Comparison:
    ratios = [second / max(first, 1e-9) for first, second in zip(before, after, strict=True)]
    low, high = interval(ratios)
    first, second = statistics.median(before), statistics.median(after)
    return Comparison(first, second, statistics.median(ratios), low, high, len(ratios))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval between two of the values that has the median of their distribution, with 99 % confidence.

    The number of values below the median is binomial, whatever their distribution.
    """
    ordered, count = sorted(values), len(values)
    left_out, doubt = 0, 2 / 2**count
    while doubt + 2 * comb(count, left_out + 1) / 2**count <= _DOUBT:
        left_out += 1
        doubt += 2 * comb(count, left_out) / 2**count
    return ordered[left_out], ordered[-1 - left_out]


def _calls_of_block(clock: Clock, before: Call, after: Call) -> int:
    """Warm both programs up. Returns the number of calls of a block."""
    for call in (before, after):
        clock.seconds(call, _WARM_UP)
    slower = max(clock.seconds(call, 1) for call in (before, after))
    return min(max(ceil(_BLOCK / max(slower, 1e-7)), 1), _MOST_CALLS)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
