"""Tests with many cases of each of PyTorch's operators take a part of the operators in each run.

A checksum decides, so that operators that are added move no others. With ``THUNDER_TEST_ALL=1`` in the environment
they take all.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable


def part(names: Iterable[str], one_in: int, turn: int = 0) -> list[str]:
    """About one in ``one_in`` of the names, always the same for a ``turn``, and others for another."""
    if os.environ.get("THUNDER_TEST_ALL"):
        return list(names)
    return [name for name in names if (zlib.crc32(name.encode()) + turn) % one_in == 0]
