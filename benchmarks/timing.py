"""Time short calls, alternating between implementations."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Call = Callable[[], object]


def interleaved_medians(calls: dict[str, Call], *, rounds: int = 41, block: float = 0.004) -> dict[str, float]:
    """Median seconds of one call, by name.

    In each round, every implementation runs calls for about ``block`` seconds, one implementation after the other, so
    that changes in the machine's speed affect all of them. Garbage collection is disabled.
    """
    counts = {name: _calls_in(call, block) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    with no_garbage_collection():
        for _ in range(rounds):
            for name, call in calls.items():
                samples[name].append(_seconds(call, counts[name]) / counts[name])
    return {name: statistics.median(seconds) for name, seconds in samples.items()}


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage, then disable collection in the body."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _calls_in(call: Call, seconds: float) -> int:
    count = 1
    while (took := _seconds(call, count)) < seconds / 2:
        count *= 2
    return max(1, round(count * seconds / took))


def _seconds(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start
