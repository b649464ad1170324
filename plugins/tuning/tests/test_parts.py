"""Comparison of times, of results, and changes of lists of executors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from timed_executors import VirtualClock

from thunder.config.entry import Entry
from thunder_plugin_tuning.comparison import compare, interval
from thunder_plugin_tuning.executor_lists import Change, slim
from thunder_plugin_tuning.results import difference


@pytest.mark.parametrize(
    ("values", "expected"),
    [([*range(8)], (0, 7)), ([*range(11)], (0, 10)), ([*range(12)], (1, 10)), ([5, 1, 4, 2, 3, 8, 7, 6], (1, 8))],
)
def test_the_interval_has_the_median_with_99_percent_confidence(values: list[float], expected: Any) -> None:
    assert interval(values) == expected


@pytest.mark.parametrize(
    ("before", "after", "faster", "slower", "rounds"),
    [
        ([2.0], [1.0], True, False, 8),
        ([1.0], [2.0], False, True, 8),
        ([1.0], [1.0], False, False, 8),  # it cannot be faster by a percent
        ([1.0], [0.995], False, False, 8),
        ([1.0], [0.8, 1.3, 1.0], False, False, 30),  # noise
        ([1.0], [0.7, 0.8, 0.75], True, False, 8),
    ],
)
def test_times_are_compared_in_rounds(
    before: list[float], after: list[float], faster: bool, slower: bool, rounds: int
) -> None:
    clock = VirtualClock()

    def call(times: list[float]) -> Any:
        calls = [0]

        def run() -> None:
            clock.spend(1e3 * times[calls[0] % len(times)])
            calls[0] += 1

        return run

    found = compare(clock, call(before), call(after))
    assert found is not None
    assert (found.faster, found.slower, found.rounds) == (faster, slower, rounds)
    assert compare(clock, call(before), call(after), deadline=clock.now() + 3) is None


NAN, ONE = float("nan"), torch.ones(4)
RESULTS: dict[str, tuple[dict[str, Any], dict[str, Any], bool, float]] = {
    "equal": ({"output 0": ONE, "output 1": 3}, {"output 0": ONE, "output 1": 3}, True, 0.0),
    "rounding": ({"output 0": ONE * (1 + 1e-6)}, {"output 0": ONE}, True, 1e-6),
    "another value": ({"output 0": ONE * 1.01}, {"output 0": ONE}, False, 1e-2),
    "in bfloat16": ({"output 0": ONE.bfloat16() * 1.01}, {"output 0": ONE.bfloat16()}, True, 7.8125e-3),
    "NaN in both": ({"output 0": ONE * NAN}, {"output 0": ONE * NAN}, True, 0.0),
    "NaN in one": ({"output 0": ONE * NAN}, {"output 0": ONE}, False, math.inf),
    "another infinity": ({"output 0": ONE / 0}, {"output 0": -ONE / 0}, False, math.inf),
    "another shape": ({"output 0": ONE[:3]}, {"output 0": ONE}, False, math.inf),
    "another integer": ({"output 0": ONE.long()}, {"output 0": ONE.long() * 2}, False, math.inf),
    "another number": ({"output 0": 3}, {"output 0": 4}, False, math.inf),
    "missing": ({}, {"output 0": ONE}, False, math.inf),
    "zero but for rounding": (
        {"gradient of a": ONE, "gradient of b": ONE * 1e-9},
        {"gradient of a": ONE, "gradient of b": ONE * -1e-9},
        True,
        2e-6 * math.sqrt(2),
    ),
    "zeros": ({"output 0": ONE}, {"output 0": ONE * 0}, False, math.inf),
    "no elements": ({"output 0": ONE[:0]}, {"output 0": ONE[:0]}, True, 0.0),
}


@pytest.mark.parametrize("case", RESULTS)
def test_results_differ_by_a_relative_error(case: str) -> None:
    found, expected, accepted, error = RESULTS[case]
    one = difference(found, expected)
    assert one.accepted is accepted
    assert one.error == pytest.approx(error, rel=0.3)
    assert bool(one.name) is (error > 0)
    if math.isfinite(error):
        assert difference(found, expected, tolerance=1.0).accepted


def entries(*plain: Any) -> tuple[Entry, ...]:
    return tuple([
        Entry(one) if isinstance(one, str) else Entry(next(iter(one))).with_options(next(iter(one.values())))
        for one in plain
    ])  # fmt: skip


AB = entries("a", {"b": {"include": ["f"], "longest": 3}})
CHANGES: list[tuple[Change, Any, Any]] = [
    (Change("first", "c"), AB, entries("c", *[one.plain() for one in AB])),
    (Change("first", "b"), AB, entries({"b": {"longest": 3}}, "a")),
    (Change("first", "a"), AB, None),
    (Change("first", "p.a"), AB, None),
    (Change("without", "a"), AB, AB[1:]),
    (Change("without", "c"), AB, None),
    (Change("takes", "c", "f"), AB, entries({"c": {"include": ["f"]}}, *[one.plain() for one in AB])),
    (Change("takes", "b", "g"), AB, entries("a", {"b": {"include": ["f", "g"], "longest": 3}})),
    (Change("takes", "a", "f"), AB, None),
    (Change("takes", "a", "f"), entries({"a": {"exclude": ["f", "g"]}}), entries({"a": {"exclude": ["g"]}})),
    (Change("takes", "a", "f"), entries({"a": {"exclude": ["f"]}}), entries("a")),
    (Change("leaves", "a", "f"), AB, entries({"a": {"exclude": ["f"]}}, AB[1].plain())),
    (Change("leaves", "b", "f"), AB, AB[:1]),
    (Change("leaves", "b", "g"), AB, entries("a", {"b": {"include": ["f"], "exclude": ["g"], "longest": 3}})),
    (Change("leaves", "a", "f"), entries({"a": {"include": ["f", "g"]}}), entries({"a": {"include": ["g"]}})),
    (Change("leaves", "c", "f"), AB, None),
]


@pytest.mark.parametrize(("change", "before", "after"), CHANGES, ids=lambda value: str(value)[:40])
def test_changes_of_lists(change: Change, before: Any, after: Any) -> None:
    assert change.applied(before) == after


def test_defaults_are_left_out_of_entries() -> None:
    options = {"include": [], "exclude": ["f"], "on_decline": "next", "optional": True, "longest": 3}
    assert slim(Entry("a").with_options(options)).plain() == {"a": {"exclude": ["f"], "longest": 3}}
