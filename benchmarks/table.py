"""Tables of rows on a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.row import BEST, Row

VERDICTS = {True: "reached", False: "NOT reached", None: ""}


def show(rows: Sequence[Row], baseline: str | None = None, console: Console | None = None) -> None:
    """Print a table for each group, with a column for each implementation, and the reasons of skipped ones."""
    console = console or _console()
    order = dict.fromkeys(name for row in rows for name in row.values)
    for group, members in itertools.groupby(rows, key=lambda row: row.group):
        console.print()
        console.print(_table(group, list(members), order, baseline))
    if baseline and baseline != BEST and not any(baseline in row.values for row in rows):
        console.print(Text(f"no ratios: there is no value of the baseline {baseline!r}"))
    for reason in dict.fromkeys(f"{name} skipped: {why}" for row in rows for name, why in row.skipped.items()):
        console.print(Text(reason))


def _console() -> Console:
    console = Console()
    # Lines of a file are not wrapped at 80 columns.
    return console if console.is_terminal else Console(width=240)


def _table(group: str, rows: list[Row], order: Iterable[str], baseline: str | None) -> Table:
    names = [name for name in order if any(name in row.values for row in rows)]
    goals = any(row.goal for row in rows)
    table = Table(title=Text(group), title_justify="left", show_lines=any(row.spread for row in rows))
    table.add_column("")
    for name in names:
        table.add_column(Text(name), justify="right")
    for heading in ("goal", "") if goals else ():
        table.add_column(heading)
    for row in rows:
        ratios = row.ratios(baseline)
        cells = [_cell(row, name, ratios.get(name)) for name in names]
        table.add_row(Text(row.what), *cells, *([Text(row.goal), Text(VERDICTS[row.reached])] if goals else []))
    return table


def _cell(row: Row, name: str, ratio: float | None) -> Text:
    if name not in row.values:
        return Text("-")
    cell = Text(f"{number(row.values[name])} {row.unit}".rstrip())
    if ratio is not None:
        cell.append(f" {ratio:.{2 if ratio < 100 else 0}f}x", style="bold")
    if name in row.spread:
        cell.append("\n" + " to ".join(map(number, row.spread[name])), style="dim")
    return cell


def number(value: float) -> str:
    """The number with about three significant digits; large numbers as integers."""
    if 0 < abs(value) < 0.01:
        return f"{value:.2g}"
    digits = 0 if value >= 1000 or value == int(value) else 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:.{digits}f}"


def notes(lines: Iterable[str]) -> None:
    """Print lines below the tables."""
    console = _console()
    for line in lines:
        console.print(Text(line))
