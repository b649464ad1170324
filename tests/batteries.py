"""Tests with many cases of each of PyTorch's operators take a part of the operators in each run.

A checksum decides, so that operators that are added move no others. With ``THUNDER_TEST_ALL=1`` in the environment
they take all, and tests that take seconds have more calls (`takes_all`). With ``THUNDER_TEST_PART=0/4`` they take the
first of four parts where they would take more.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable


def takes_all() -> bool:
    """Whether tests run all cases, with ``THUNDER_TEST_ALL=1``."""
    return bool(os.environ.get("THUNDER_TEST_ALL"))


def part(names: Iterable[str], one_in: int = 1, turn: int = 0) -> list[str]:
    """About one in ``one_in`` of the names, always the same for a ``turn``, and others for another."""
    if takes_all():
        return list(names)
    if wanted := os.environ.get("THUNDER_TEST_PART"):
        number, _, parts = wanted.partition("/")
        if int(parts) > one_in:
            one_in, turn = int(parts), int(number)
    return [name for name in names if (zlib.crc32(name.encode()) + turn) % one_in == 0]
