"""Which entry runs first for a call, by the values of the last calls."""

from __future__ import annotations

from typing import Any

from thunder_core.runtime.outcomes import LikelyOutcomes

FIRST: Any = object()
OTHER: Any = object()


def test_the_entry_of_the_last_calls_runs_first_for_sizes_that_are_new() -> None:
    likely = LikelyOutcomes()
    for step in range(2):
        assert likely.entry((FIRST, (step,))) is FIRST
        likely.learn((FIRST, (step,)), OTHER)
    for step in range(2, 9):
        assert likely.entry((FIRST, (step,))) is OTHER
        likely.learn((FIRST, (step,)), OTHER)
    assert len(likely._misses) <= 3


def test_sizes_that_decide_are_remembered() -> None:
    likely = LikelyOutcomes()
    for _ in range(3):
        likely.learn((FIRST, (4,)), OTHER)
        likely.learn((FIRST, (5,)), FIRST)
    assert likely.entry((FIRST, (4,))) is OTHER
    for _ in range(2):
        likely.learn((FIRST, (5,)), FIRST)
    assert likely.entry((FIRST, (5,))) is FIRST


def test_little_is_remembered_of_numbers_that_never_come_again() -> None:
    likely = LikelyOutcomes()
    for step in range(20_000):
        likely.learn((FIRST, (step,)), OTHER if step // 2 % 2 else FIRST)
    assert len(likely._misses) <= 4096
