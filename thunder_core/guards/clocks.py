"""Calls of builtin functions that tell something else each time: clocks, and the system's random bytes."""

from __future__ import annotations

import datetime
import os
import time
from typing import Any, Final

_CLOCKS: Final = frozenset(
    {
        *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"),
        *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    }
)
_DATES: Final = frozenset({"now", "utcnow", "today"})
NAMES: Final = _CLOCKS | _DATES | {"urandom"}
"""Names of builtin functions that are worth a closer look."""


def told_by(function: Any, *, directly: bool) -> str | None:
    """The name of a builtin function that tells something else each time, None for others.

    Args:
        directly: the user's code calls it; clocks that the standard library reads for itself, to log, do not count.
    """
    return _entropy(function) or (_clock(function) if directly else None)


def _clock(function: Any) -> str | None:
    name, owner = function.__name__, getattr(function, "__self__", None)
    if name in _CLOCKS and owner is time:
        return f"time.{name}"
    if name in _DATES and isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"{owner.__name__}.{name}"
    return None


def _entropy(function: Any) -> str | None:
    return "os.urandom" if function is os.urandom else None
