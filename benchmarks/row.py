"""One line of a result, and lines as a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

IMPLEMENTATIONS = ("eager", "torch.compile", "thunder")


@dataclass(frozen=True)
class Row:
    """What was measured, for each implementation.

    Attributes:
        group: the benchmark it belongs to.
        what: what was measured, one line.
        unit: of the values: us, ms, s, MiB, %, x (a ratio) or an empty string.
        values: a number for each implementation; absent where it has no meaning or was not measured.
        skipped: why an implementation was not measured, by its name.
        goal: what Thunder is to reach, in words; empty if there is none.
        reached: whether it does; None if there is no goal or it could not be told.
        details: what else was seen; kept in the JSON file, not shown in the table.
    """

    group: str
    what: str
    unit: str
    values: dict[str, float]
    skipped: dict[str, str]
    goal: str = ""
    reached: bool | None = None
    details: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)

    def ratio(self, other: str) -> float | None:
        """Thunder's value divided by ``other``'s."""
        if "thunder" not in self.values or not self.values.get(other):
            return None
        return self.values["thunder"] / self.values[other]


def as_table(rows: list[Row]) -> str:
    """The rows, aligned, with a heading for each group, and footnotes for what was skipped."""
    header = ["", *IMPLEMENTATIONS, "/ eager", "/ torch.compile", "goal", ""]
    body = [_cells(row) for row in rows]
    widths = [max(len(line[column]) for line in [header, *body]) for column in range(len(header))]
    lines = []
    group = ""
    for row, cells in zip(rows, body, strict=True):
        if row.group != group:
            group = row.group
            lines += ["", _align([group, *header[1:]], [max(widths[0], len(group)), *widths[1:]])]
            lines.append("─" * len(lines[-1]))
        lines.append(_align(cells, widths))
    reasons = sorted({f"{name} skipped: {reason}" for row in rows for name, reason in row.skipped.items()})
    return "\n".join([*lines, *([""] if reasons else []), *reasons])


def _cells(row: Row) -> list[str]:
    values = [_number(row.values[name], row.unit) if name in row.values else "-" for name in IMPLEMENTATIONS]
    ratios = [f"{ratio:.2f}" if (ratio := row.ratio(other)) is not None else "-" for other in IMPLEMENTATIONS[:2]]
    verdict = {True: "reached", False: "NOT reached", None: ""}[row.reached]
    return [row.what, *values, *ratios, row.goal, verdict]


def _number(value: float, unit: str) -> str:
    digits = 0 if value >= 1000 or value == int(value) else 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:.{digits}f} {unit}".rstrip()


def _align(cells: list[str], widths: list[int]) -> str:
    first, *numbers, goal, verdict = cells
    columns = [first.ljust(widths[0])]
    columns += [cell.rjust(width) for cell, width in zip(numbers, widths[1:-2], strict=True)]
    columns += [goal.ljust(widths[-2]), verdict.ljust(widths[-1])]
    return "  ".join(columns).rstrip()
