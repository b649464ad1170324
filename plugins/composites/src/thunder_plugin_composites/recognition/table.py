"""The pattern table. Packages that define composites add rows."""

from __future__ import annotations

from collections.abc import Iterable

from thunder_plugin_composites.recognition.pattern import Pattern

_rows: list[Pattern] = []


def all_patterns() -> tuple[Pattern, ...]:
    """The rows in the order in which they were added. If two match the same operations, the first is used."""
    return tuple(_rows)


def add_patterns(patterns: Iterable[Pattern]) -> None:
    """Add rows; rows that are already in the table (identical objects) are ignored.

    Raises:
        TypeError: a row is not a `Pattern`.
    """
    rows = list(patterns)
    for row in rows:
        if not isinstance(row, Pattern):
            raise TypeError(f"{row!r} is not a Pattern")
    _rows.extend([row for row in rows if row not in _rows])
