"""The pattern table: how models spell composites out. Its rows are added by the packages that define composites."""

from __future__ import annotations

from collections.abc import Iterable

from thunder_plugin_composites.recognition.pattern import Pattern

_rows: list[Pattern] = []


def all_patterns() -> tuple[Pattern, ...]:
    """The rows, in the order in which they were added. Of two that fit the same lines, the first is taken."""
    return tuple(_rows)


def add_patterns(patterns: Iterable[Pattern]) -> None:
    """Add rows; those that the table has already, the same objects, stay.

    Raises:
        TypeError: one is no `Pattern`.
    """
    rows = list(patterns)
    for row in rows:
        if not isinstance(row, Pattern):
            raise TypeError(f"{row!r} is no Pattern")
    _rows.extend([row for row in rows if row not in _rows])
