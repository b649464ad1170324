"""The decisions of executors as a table: one row for each operation that went the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thunder_core.report.decisions import LineDecisions


@dataclass(frozen=True)
class DecisionRow:
    """Lines that call the same operation, are run by the same executor, and were declined by the same ones.

    Attributes:
        phase, symbol, declined: as in `LineDecisions`.
        executor: its name, followed by the variant that it takes if it has several: ``sdpa.flash``.
        depth: 0 for lines that were offered, 1 for parts of them, and so on.
        lines: how many they are.
        location: the user's line of the first.
    """

    phase: str
    symbol: str
    executor: str
    declined: tuple[tuple[str, str], ...]
    depth: int
    lines: int
    location: str | None


def decision_rows(decisions: Sequence[LineDecisions]) -> tuple[DecisionRow, ...]:
    """The rows, in the order in which they first appear; parts follow what they are parts of."""
    counts: dict[tuple[tuple[str, ...], str, str, tuple[tuple[str, str], ...]], int] = {}
    first: dict[object, LineDecisions] = {}

    def add(line: LineDecisions, path: tuple[str, ...]) -> None:
        own = f"{line.executor}.{line.variant}" if line.variant else line.executor
        executor = "its parts" if line.parts else own
        key = ((line.phase, *path), line.symbol, executor, line.declined)
        counts[key] = counts.get(key, 0) + 1
        first.setdefault(key, line)
        for part in line.parts:
            add(part, (*path, line.symbol))

    for line in decisions:
        add(line, ())
    rows = []
    for key, count in counts.items():
        path, symbol, executor, declined = key
        rows.append(DecisionRow(path[0], symbol, executor, declined, len(path) - 1, count, first[key].location))
    return tuple(rows)


def decision_table(decisions: Sequence[LineDecisions]) -> list[str]:
    """The rows as aligned text; reasons follow on separate lines."""
    rows = decision_rows(decisions)
    cells = [(row.phase, f"{row.lines} x", "  " * row.depth + row.symbol, row.executor) for row in rows]
    widths = [max([len(row[column]) for row in cells], default=0) for column in range(4)]
    lines = []
    for row, (phase, count, symbol, executor) in zip(rows, cells, strict=True):
        text = f"{phase:<{widths[0]}}  {count:>{widths[1]}} {symbol:<{widths[2]}}  {executor:<{widths[3]}}"
        lines.append(f"{text}  {row.location or ''}".rstrip())
        lines.extend(f"{'':<{widths[0]}}    not {name}: {reason}" for name, reason in row.declined)
    return lines
