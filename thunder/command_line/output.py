"""Print tables: on a terminal with its width, else as lines for `grep` and `awk`.

Rich detects the terminal, its width and its colors, and respects ``NO_COLOR``, ``FORCE_COLOR`` and ``COLUMNS``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SENTENCE: Final = 16  # characters of a line that a column of sentences can be read with
_GAP: Final = 2  # spaces between columns


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its title.
        right: whether it is aligned to the right, as numbers are.
        wraps: whether it has sentences, which a terminal wraps between words.
        cut: whether a terminal shows the beginning only, in one line. Such a column is the last.
        styles: colors of cells by their text.
    """

    title: str
    right: bool = False
    wraps: bool = False
    cut: bool = False
    styles: Mapping[str, str] = field(default_factory=dict)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text.

    On a terminal sentences are wrapped to its width, and columns without content are left out. Words, such as names,
    paths and commands, are never broken: if they do not fit, a row is one line, as elsewhere. Elsewhere a row is one
    line, however long; cells are two spaces apart without padding, and an empty cell is ``-``.
    """
    console = _console()
    if console.is_terminal and columns[-1].cut:
        _print_cut(columns, rows, console)
        return
    table = _rich_table(columns, rows, console) if console.is_terminal else None
    if table is None:
        print_lines(_unpadded(columns, rows))
    else:
        console.print(table)


def on_terminal() -> bool:
    """Whether standard output is a terminal, or ``FORCE_COLOR`` says so."""
    return _console().is_terminal


def _console() -> Console:
    from rich.console import Console

    return Console(markup=False, highlight=False)


def print_lines(lines: Sequence[str]) -> None:
    """Print lines of text as they are."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def print_facts(facts: Mapping[str, str]) -> None:
    """Print a line for each name and its text, aligned on a terminal."""
    width = max(map(len, facts)) if on_terminal() else 0
    print_lines([f"{name:<{width}}  {text}" for name, text in facts.items()])


def print_json(value: Any) -> None:
    """Print a value as JSON, with objects of other types as text."""
    print_lines([json.dumps(value, indent=2, default=str)])


def _rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], console: Console) -> Table | None:
    """The table for a terminal; None if it would break a word."""
    from rich.table import Table
    from rich.text import Text

    shown = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    least = {index: _least_width(columns[index], [row[index] for row in rows]) for index in shown}
    if sum(least.values()) + _GAP * (len(shown) - 1) > console.width:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=_header_style(console))
    for index in shown:
        column = columns[index]
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(
            column.title, justify=justify, overflow="fold", no_wrap=not column.wraps, min_width=least[index]
        )
    for row in rows:
        table.add_row(*(Text(row[index], columns[index].styles.get(row[index], "")) for index in shown))
    return table


def _print_cut(columns: Sequence[Column], rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print a table whose last column is cut at the width of the terminal."""
    from rich.text import Text

    widths = [
        max(len(row[index]) for row in (*rows, [column.title for column in columns])) + _GAP
        for index, column in enumerate(columns[:-1])
    ]
    left = max(console.width - sum(widths), _SENTENCE)
    for number, row in enumerate([[column.title for column in columns], *rows]):
        last = " ".join(row[-1].split())
        line = Text(style="" if number else _header_style(console))
        for column, cell, width in zip(columns, row, widths, strict=False):
            line.append(cell, column.styles.get(cell, "")).append(" " * (width - len(cell)))
        console.print(line.append(last if len(last) <= left else f"{last[: left - 3]}..."), soft_wrap=True)


def _header_style(console: Console) -> str:
    return "" if console.no_color else "bold"


def _least_width(column: Column, cells: Sequence[str]) -> int:
    """The width that a column needs on a terminal: that of its longest cell, or of the longest word of sentences."""
    if not column.wraps:
        return max(map(len, (column.title, *cells)))
    return max(len(word) for text in (column.title, *cells) for word in text.split() or [""])


def _unpadded(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    table = [[column.title for column in columns], *([_one_line(cell) for cell in row] for row in rows)]
    return [(" " * _GAP).join(row) for row in table]


def _one_line(cell: str) -> str:
    return cell.rstrip() if cell.isprintable() and cell.strip() else " ".join(cell.split()) or "-"
