"""Which cases a run has: all, a sample of those of batteries, or one of several parts of them.

Tests with the mark ``battery`` have many cases of one kind: operators, modules, random programs. Tests with the mark
``slow`` start processes, compile C++, or train a model, or their table of cases takes seconds. With the variable
``THUNDER_TEST_SEED`` in the environment, a number, a run takes one case of a battery in seven, and one slow case in
three. Consecutive seeds take other cases, and seven of them all; ``scripts/test`` without arguments takes the day of
the last commit. Cases are chosen by a checksum of their names, so that a new case moves no others. The tests of a file
that is marked as slow, by its ``pytestmark``, are taken together, because they share an expensive fixture.

With ``THUNDER_TEST_PART=2/4`` a run takes the second of four parts of all its tests, so that several machines can share
them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import Final

import pytest

ONE_IN: Final = {"battery": 7, "slow": 3}
"""The share of the cases in a sample, by mark."""


def is_sample() -> bool:
    """Whether this run takes a sample of the cases of batteries and of slow tests."""
    return bool(os.environ.get("THUNDER_TEST_SEED"))


def sample(names: Iterable[str], mark: str = "battery") -> list[str]:
    """The cases that this run takes, for tests that run many cases themselves; see `in_every_part`."""
    return [name for name in names if _takes(name, ONE_IN[mark])]


def _takes(name: str, one_in: int) -> bool:
    """Whether the sample and the part of this run have a case."""
    seed, checksum = os.environ.get("THUNDER_TEST_SEED"), zlib.crc32(name.encode())
    number, parts = _part()
    return (not seed or (checksum + int(seed)) % one_in == 0) and checksum // one_in % parts == number


in_every_part: Final = pytest.mark.in_every_part
"""The mark of tests whose cases are a `sample` themselves."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that this run does not take."""
    number, parts = _part()
    taken: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        if item.get_closest_marker("in_every_part"):
            takes = True
        elif sampled := next((mark for mark in ONE_IN if item.get_closest_marker(mark)), None):
            takes = _takes(_marked(item, sampled), ONE_IN[sampled])
        else:
            takes = zlib.crc32(_unit(item)) % parts == number
        taken[takes].append(item)
    if taken[False]:
        config.hook.pytest_deselected(items=taken[False])
        items[:] = taken[True]


def _marked(item: pytest.Item, mark: str) -> str:
    """What is taken or not: a case, or the file whose ``pytestmark`` has the mark."""
    node, _ = next(item.iter_markers_with_node(mark))
    return item.nodeid if isinstance(node, pytest.Item) else node.nodeid


def _unit(item: pytest.Item) -> bytes:
    """What is not split over parts: the cases of one test function, which may share a fixture."""
    return item.nodeid.partition("[")[0].encode()


def _part() -> tuple[int, int]:
    """The number of this part, from 0, and the number of parts."""
    number, _, parts = os.environ.get("THUNDER_TEST_PART", "1/1").partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise pytest.UsageError(f"THUNDER_TEST_PART is {number}/{parts}; it must be like 2/4, the second of four parts")
    return int(number) - 1, int(parts)
