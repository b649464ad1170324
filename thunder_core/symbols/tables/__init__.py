"""The tables: rows by area, one file each."""

from __future__ import annotations

from collections.abc import Iterator

from thunder_core.symbols.row import Row
from thunder_core.symbols.tables import python


def all_rows() -> Iterator[Row]:
    """The rows of every table."""
    for table in (python,):
        yield from table.ROWS
