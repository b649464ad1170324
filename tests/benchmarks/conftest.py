"""A clock that does not depend on the machine, so that timed loops are as short as they can be."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Final

import pytest

TICK: Final = 0.04
"""Seconds between two looks at the clock: more than a block of `benchmarks.timing`, so that it has one call."""
TIMED: Final = ("dispatch", "measurement", "timing")
"""Modules of the benchmarks that repeat calls until they have taken long enough."""


@pytest.fixture(autouse=True)
def _steady_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1)
    for name in TIMED:
        clock = SimpleNamespace(perf_counter=lambda: next(ticks) * TICK)
        monkeypatch.setattr(f"benchmarks.{name}.time", clock)
