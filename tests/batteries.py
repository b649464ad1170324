"""Which cases a run has: all, a sample of those of batteries, or one of several parts of them.

Tests with the mark ``battery`` have many cases of one kind: operators, modules, random programs. Tests with the mark
``slow`` start processes, compile C++, or train a model, or their table of cases takes seconds. With the variable
``THUNDER_TEST_SEED`` in the environment, a number, a run takes one case of these in seven, and one in seven of each
*table*, any other test function with four cases or more, but at least one; and all other tests. Consecutive seeds take
other cases, and seven of them all; ``scripts/test`` without arguments takes the day of the last commit. Cases are
chosen by a checksum of their names, so that a new case moves no others. The tests of a file that is marked as slow, by
its ``pytestmark``, are taken together, because they share an expensive fixture.

With ``THUNDER_TEST_PART=2/4`` a run takes the second of four parts of all its tests, so that several machines can share
them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import Final

import pytest

MARKS: Final = ("battery", "slow")
ONE_IN: Final = 7
"""The share of the cases with one of `MARKS`, and of those of a table, in a sample."""
TABLE: Final = 4
"""The least number of cases of a table."""


def is_sample() -> bool:
    """Whether this run takes a sample of the cases of batteries and of slow tests."""
    return bool(os.environ.get("THUNDER_TEST_SEED"))


def sample(names: Iterable[str]) -> list[str]:
    """The cases that this run takes, for tests that run many cases themselves; see `in_every_part`."""
    return [name for name in names if _takes(name)]


def _takes(name: str) -> bool:
    """Whether the sample and the part of this run have a case of a battery, or a slow one."""
    number, parts = _part()
    return _in_sample(name) and zlib.crc32(name.encode()) // ONE_IN % parts == number


def _in_sample(name: str) -> bool:
    seed = os.environ.get("THUNDER_TEST_SEED")
    return not seed or (zlib.crc32(name.encode()) + int(seed)) % ONE_IN == 0


def _of_table(names: Iterable[str]) -> list[str]:
    """The cases of a test function without a mark in the sample of this run: at least one."""
    cases = sorted(names, key=lambda name: zlib.crc32(name.encode()))
    taken = [name for name in cases if len(cases) < TABLE or _in_sample(name)]
    return taken or cases[:1]


in_every_part: Final = pytest.mark.in_every_part
"""The mark of tests whose cases are a `sample` themselves."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that this run does not take."""
    number, parts = _part()
    taken: dict[bool, list[pytest.Item]] = {True: [], False: []}
    functions: dict[str, list[str]] = {}
    for item in items:
        functions.setdefault(_function(item), []).append(item.nodeid)
    unmarked = {name for names in functions.values() for name in _of_table(names)}
    for item in items:
        if item.get_closest_marker("in_every_part"):
            takes = True
        elif sampled := next((mark for mark in MARKS if item.get_closest_marker(mark)), None):
            takes = _takes(_marked(item, sampled))
        else:
            takes = item.nodeid in unmarked and zlib.crc32(_function(item).encode()) % parts == number
        taken[takes].append(item)
    if taken[False]:
        config.hook.pytest_deselected(items=taken[False])
        items[:] = taken[True]


def _marked(item: pytest.Item, mark: str) -> str:
    """What is taken or not: a case, or the file whose ``pytestmark`` has the mark."""
    node, _ = next(item.iter_markers_with_node(mark))
    return item.nodeid if isinstance(node, pytest.Item) else node.nodeid


def _function(item: pytest.Item) -> str:
    """What is not split over parts: the cases of one test function, which may share a fixture."""
    return item.nodeid.partition("[")[0]


def _part() -> tuple[int, int]:
    """The number of this part, from 0, and the number of parts."""
    number, _, parts = os.environ.get("THUNDER_TEST_PART", "1/1").partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise pytest.UsageError(f"THUNDER_TEST_PART is {number}/{parts}; it must be like 2/4, the second of four parts")
    return int(number) - 1, int(parts)
