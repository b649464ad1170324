"""The rows of all tables, indexed by printed name and by the functions that spell them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thunder_core.ir.symbol import CallStyle
from thunder_core.symbols.naming import Function, evaluate, existing_function, printed_name
from thunder_core.symbols.row import Row, Spelling
from thunder_core.symbols.tables import all_rows

Key = tuple[str, CallStyle]


@dataclass(frozen=True, slots=True)
class Entry:
    """What a function in the tables stands for: a row, or its in-place variant, under one of its spellings."""

    row: Row
    spelling: Spelling
    inplace: bool


class Catalogue:
    """An index of rows.

    Attributes:
        rows: by printed name and style.
        entries: by function.
        problems: what in the tables does not fit this version of PyTorch or contradicts itself; such rows and spellings
            are left out, and calls of them are opaque.
    """

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self.rows: dict[Key, Row] = {}
        self.entries: dict[Function, Entry] = {}
        self.problems: list[str] = []
        for row in rows:
            self._add_row(row)

    def extend(self, rows: Iterable[Row]) -> Catalogue:
        """Add rows and return those that are new. Rows that are there already, the same objects, stay as they are.

        Raises:
            ValueError: a row is about a function that has one, or about none. Nothing is added then.
        """
        present = {id(row) for row in self.rows.values()}
        new = [row for row in rows if id(row) not in present]
        added = Catalogue(tuple(new))
        problems = added.problems + [
            f"{entry.row.name}: {entry.spelling.name} belongs to the row of {self.entries[function].row.name}"
            for function, entry in added.entries.items()
            if function in self.entries
        ]
        if problems:
            raise ValueError("these rows contradict others: " + "; ".join(problems))
        self.rows.update(added.rows)
        self.entries.update(added.entries)
        return added

    def _add_row(self, row: Row) -> None:
        key = (printed_name(row.name, row.style), row.style)
        printed = row.target if row.style is CallStyle.GETITEM else row.name
        missing = [name for name in dict.fromkeys((printed, row.target)) if existing_function(name) is None]
        if missing or key in self.rows:
            self.problems.append(
                f"{row.name}: " + (f"PyTorch has no {' and no '.join(missing)}" if missing else "two rows")
            )
            return
        self.rows[key] = row
        for spelling in row.spellings:
            self._add_spelling(Entry(row, spelling, inplace=False))
        for spelling in row.inplace:
            self._add_spelling(Entry(row, spelling, inplace=True))

    def _add_spelling(self, entry: Entry) -> None:
        row, spelling = entry.row, entry.spelling
        func = existing_function(spelling.name)
        if func is None:
            if not spelling.implied:
                self.problems.append(f"{row.name}: PyTorch has no {spelling.name}")
            return
        known = self.entries.setdefault(func, entry)
        if known.row is not row:
            self.problems.append(f"{row.name}: {spelling.name} belongs to {known.row.name}")


def import_modules(rows: Iterable[Row]) -> None:
    """Import the modules of the functions that rows are about.

    Raises:
        ValueError: a row is about a function that does not exist.
    """
    for name in (name for row in rows for name in (row.name, row.target)):
        try:
            evaluate(name)
        except LookupError as error:
            raise ValueError(f"the row of {name} is about a function that does not exist: {error}") from error


def load_catalogue() -> Catalogue:
    """The catalogue of the tables in this package."""
    return Catalogue(tuple(all_rows()))
