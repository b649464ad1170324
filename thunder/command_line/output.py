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


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its title.
        right: whether it is aligned to the right, as numbers are.
        wraps: whether it has sentences, which are wrapped before other columns are.
        styles: colors of cells by their text.
    """

    title: str
    right: bool = False
    wraps: bool = False
    styles: Mapping[str, str] = field(default_factory=dict)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text.

    On a terminal the cells are wrapped to its width, and columns without content are left out. Elsewhere a row is one
    line, however long; the columns are two spaces apart, and an empty cell is ``-``.
    """
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    if console.is_terminal:
        console.print(_rich_table(columns, rows, console))
    else:
        print_lines(_aligned(columns, rows))


def print_lines(lines: Sequence[str]) -> None:
    """Print lines of text as they are."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def print_json(value: Any) -> None:
    """Print a value as JSON, with objects of other types as text."""
    print_lines([json.dumps(value, indent=2, default=str)])


def _rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], console: Console) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="" if console.no_color else "bold")
    shown = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    lengths = {index: max(len(row[index]) for row in (*rows, [column.title for column in columns])) for index in shown}
    # What identifies a row stays in one piece, if that leaves some width to the sentences.
    needed = sum(_SENTENCE if columns[index].wraps else length + 2 for index, length in lengths.items())
    for index in shown:
        justify: Literal["left", "right"] = "right" if columns[index].right else "left"
        rigid = needed <= console.width and not columns[index].wraps
        table.add_column(columns[index].title, justify=justify, overflow="fold", no_wrap=rigid)
    for row in rows:
        table.add_row(*(Text(row[index], columns[index].styles.get(row[index], "")) for index in shown))
    return table


def _aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    table = [[column.title for column in columns], *([_one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    return ["  ".join(map(_pad, columns, row, widths)).rstrip() for row in table]


def _one_line(cell: str) -> str:
    return cell if cell.isprintable() and cell else " ".join(cell.split()) or "-"


def _pad(column: Column, cell: str, width: int) -> str:
    return cell.rjust(width) if column.right else cell.ljust(width)
