"""Regions of random graphs of lines, run on a machine that knows nothing of regions."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from types import FrameType
from typing import Any

import pytest
from region_graphs import Machine, groupings, layers, random_labels, random_lines, tensor

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.passes.dependencies import dependencies, run_order
from thunder_fusion.keys import ops_key
from thunder_fusion.regions import find_regions


def in_order(lines: list[BoundSymbol], regions: list[list[int]]) -> list[BoundSymbol]:
    order = run_order(dependencies(lines), regions)
    assert order is not None
    assert sorted(index for group in order for index in group) == list(range(len(lines)))
    return [lines[index] for group in order for index in group]


@pytest.mark.parametrize("count", [5, 30, 120])
def test_the_machine_notices_nothing(count: int) -> None:
    """Values, memories, draws and effects are the same, with the lines of a region run without a pause."""
    for seed in range(60):
        lines = random_lines(seed, count)
        labels = random_labels(seed, lines)
        regions = find_regions(lines, labels)
        labelled = [index for index, label in enumerate(labels) if label is not None]
        assert sorted(index for region in regions for index in region) == labelled
        for region in regions:
            assert len({labels[index] for index in region}) == 1
            assert region == sorted(region)
        assert Machine().run(in_order(lines, regions)) == Machine().run(lines), seed


def test_the_machine_notices_a_wrong_order() -> None:
    """Exchanging neighbours that may not be exchanged is seen; the test above can fail."""
    noticed = 0
    for seed in range(50):
        lines = random_lines(seed, 30)
        before = dependencies(lines)
        places = [place for place in range(29) if place in before[place + 1]]
        for place in places:
            other = [*lines]
            other[place], other[place + 1] = other[place + 1], other[place]
            try:
                noticed += Machine().run(other) != Machine().run(lines)
            except AssertionError:
                noticed += 1
    assert noticed > 300


def test_regions_do_not_depend_on_names_or_runs() -> None:
    for seed in range(30):
        lines = random_lines(seed, 60)
        labels = random_labels(seed, lines)
        again = [
            replace(
                line,
                args=tuple([tensor(f"other_{proxy.name}", proxy.storage + 7) for proxy in line.args]),
                output=tensor(f"other_{line.output.name}", line.output.storage + 7),
                effects=replace(line.effects, mutates=tuple([f"other_{name}" for name in line.effects.mutates])),
            )
            for line in lines
        ]
        assert find_regions(lines, labels) == find_regions(lines, labels) == find_regions(again, labels)


def traffic(lines: list[BoundSymbol], groups: list[list[int]]) -> int:
    """Number of values that groups of lines read and write, as calls: what is used inside alone is not written."""
    readers: dict[str, set[int]] = {}
    for index, line in enumerate(lines):
        for proxy in line.args:
            readers.setdefault(proxy.name, set()).add(index)
    count = 0
    for group in groups:
        made = {lines[index].output.name for index in group}
        count += len({proxy.name for index in group for proxy in lines[index].args} - made)
        count += sum(not readers.get(name) or not readers[name].issubset(group) for name in made)
    return count


def _runs(before: list[list[int]], labels: list[int | None], grouping: list[list[int]]) -> bool:
    if any(len({labels[index] for index in group}) > 1 for group in grouping):
        return False
    place = {index: ("group", number) for number, group in enumerate(grouping) for index in group}
    graph: dict[Any, set[Any]] = {}
    for index, earlier in enumerate(before):
        own = place.get(index, index)
        graph.setdefault(own, set()).update(other for e in earlier if (other := place.get(e, e)) != own)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return False
    return True


def test_hardly_more_traffic_than_necessary() -> None:
    """Against all divisions of small graphs: 5 % more, and the least in three of four graphs."""
    found, least, worse = 0, 0, 0
    for seed in range(60):
        lines = random_lines(seed, 8, ("a", "b", "product"), near=4)
        labels: list[int | None] = [None if line.symbol.name == "product" else 0 for line in lines]
        before = dependencies(lines)
        own = traffic(lines, find_regions(lines, labels))
        fusible = [index for index, label in enumerate(labels) if label is not None]
        best = min(traffic(lines, g) for g in groupings(fusible) if _runs(before, labels, g))
        found, least, worse = found + own, least + best, worse + (own > best)
    assert found <= 1.08 * least
    assert worse <= 60 / 4


def kinds_of_regions(lines: list[BoundSymbol], labels: list[int | None]) -> Counter[Any]:
    return Counter(ops_key([lines[index] for index in region]) for region in find_regions(lines, labels))


def test_stray_ops_do_not_make_layers_differ() -> None:
    plain = kinds_of_regions(*layers(6, stray=False))
    found = kinds_of_regions(*layers(6))
    assert sorted(plain.values()) == [6, 6]
    # The mask and the lines at the end are separate regions; the rest of their regions is like the others.
    assert sorted(found.values()) == [2, 6, 7]
    assert set(plain) <= set(found)


def test_a_region_is_split_only_if_others_are_like_it() -> None:
    assert sorted(kinds_of_regions(*layers(1)).values()) == [1, 1, 1]


@pytest.mark.slow
def test_work_grows_with_the_number_of_ops() -> None:
    """Steps of Python, not time: 8,700 lines take at most ten times as many as 1,000."""
    counts = [_steps(random_lines(0, count)) for count in (1_000, 8_700)]
    assert counts[1] <= 10 * counts[0]


def test_work_grows_with_the_number_of_layers() -> None:
    counts = [_steps(*layers(count)) for count in (50, 500)]
    assert counts[1] <= 11 * counts[0]


def _steps(lines: list[BoundSymbol], labels: list[int | None] | None = None) -> int:
    """Calls, lines and returns of Python functions while regions are found and put in order."""
    labels = random_labels(0, lines) if labels is None else labels
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        run_order(dependencies(lines), find_regions(lines, labels))
    finally:
        sys.settrace(previous)
    return count
