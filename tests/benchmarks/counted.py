"""Functions for new processes, which import this file: it is light."""

from __future__ import annotations

import time

from benchmarks.process import yield_turn


def counted(count: int) -> int:
    """Gives way ``count`` times, and returns it. Fails for 0."""
    for _ in range(count):
        yield_turn()
    return count if 1 / count else 0


def asleep() -> None:
    """Has no result within a minute."""
    time.sleep(60)
