"""Which cases a run has: all, a sample of those of batteries, or one of several parts of them.

Tests with the mark ``battery`` have many cases of one kind: operators, modules, random programs. With the variable
``THUNDER_TEST_SEED`` in the environment, a number, a run takes one case in seven. Consecutive seeds take other cases,
and seven of them all; ``scripts/test`` without arguments takes the day of the last commit. Cases are chosen by a
checksum of their names, so that a new case moves no others.

With ``THUNDER_TEST_PART=2/4`` a run takes the second of four parts of all its tests, so that several machines can share
them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import Final

import pytest

ONE_IN: Final = 7
"""The share of the cases of batteries in a sample."""


def is_sample() -> bool:
    """Whether this run takes a sample of the cases of batteries."""
    return bool(os.environ.get("THUNDER_TEST_SEED"))


def sample(names: Iterable[str]) -> list[str]:
    """The cases of a battery that this run takes, for tests that run many cases themselves; see `in_every_part`."""
    seed = os.environ.get("THUNDER_TEST_SEED")
    number, parts = _part()
    chosen = [name for name in names if not seed or (zlib.crc32(name.encode()) + int(seed)) % ONE_IN == 0]
    return [name for name in chosen if zlib.crc32(name.encode()) // ONE_IN % parts == number]


in_every_part: Final = pytest.mark.in_every_part
"""The mark of tests whose cases are a `sample` themselves."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that this run does not take."""
    chosen = set(sample([item.nodeid for item in items if item.get_closest_marker("battery")]))
    number, parts = _part()
    taken: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        if item.get_closest_marker("battery"):
            takes = item.nodeid in chosen
        else:
            takes = bool(item.get_closest_marker("in_every_part")) or zlib.crc32(_unit(item)) % parts == number
        taken[takes].append(item)
    if taken[False]:
        config.hook.pytest_deselected(items=taken[False])
        items[:] = taken[True]


def _unit(item: pytest.Item) -> bytes:
    """What is not split over parts: the cases of one test function, which may share a fixture."""
    return item.nodeid.partition("[")[0].encode()


def _part() -> tuple[int, int]:
    """The number of this part, from 0, and the number of parts."""
    number, _, parts = os.environ.get("THUNDER_TEST_PART", "1/1").partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise pytest.UsageError(f"THUNDER_TEST_PART is {number}/{parts}; it must be like 2/4, the second of four parts")
    return int(number) - 1, int(parts)
