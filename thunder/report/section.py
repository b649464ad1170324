"""A section of a report: its rows as data, which print as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Row = TypeVar("Row", covariant=True)


class Section(tuple[Row, ...]):
    """Rows of a report; ``str`` and ``repr`` are its text.

    Args:
        rows: the rows.
        lines: the text, a line each.
    """

    _text: str

    def __new__(cls, rows: Iterable[Row], lines: Iterable[str]) -> Section[Row]:
        section = super().__new__(cls, rows)
        section._text = "\n".join(lines)
        return section

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __reduce__(self) -> tuple[type[Section[Row]], tuple[tuple[Row, ...], list[str]]]:
        return Section, (tuple(self), self._text.split("\n"))
