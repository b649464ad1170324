"""What a program communicates with other processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from thunder_core.report.amounts import bytes_text, counted, operations_text


@dataclass(frozen=True)
class CollectiveReport:
    """One operator that communicates, in one line of a program.

    Attributes:
        phase: the program: "inference", "forward" or "backward".
        kind: of the operator: ``all_reduce``, ``all_gather`` and the like.
        symbol: what the line calls.
        location: the user's line; None if there is none.
        group, ranks: the name of the process group, and how many ranks it has.
        tensors: how many the operator is given.
        bytes: that each rank sends, by the algorithms that send the least: ``2 (ranks - 1) / ranks`` of the tensors for
            an all-reduce, ``(ranks - 1) / ranks`` of the whole for a gather or a scatter.
        lines: of the program that compute between this line and the one that waits for it; None if none waits.
        flops: operations of those whose number is known.
    """

    phase: str
    kind: str
    symbol: str
    location: str | None
    group: str
    ranks: int
    tensors: int
    bytes: int
    lines: int | None
    flops: int = 0

    def cells(self) -> list[str]:
        """For people: operator, group, bytes, what stands before the wait, where."""
        between = "not waited for"
        if self.lines is not None:
            between = f"{counted(self.lines, 'line')}, {operations_text(self.flops)}" if self.lines else "nothing"
        group = f"group {self.group!r} of {counted(self.ranks, 'rank')}"
        operator = f"{self.kind} of {counted(self.tensors, 'tensor')}"
        return [self.phase, operator, group, bytes_text(self.bytes), between, self.location or ""]


def collective_lines(collectives: Sequence[CollectiveReport]) -> list[str]:
    """The report as text: a line for equal ones, with their number, operator, group, bytes sent and what stands before
    the wait.
    """
    if not collectives:
        return []
    total = sum(each.bytes for each in collectives)
    rows = Counter([tuple(each.cells()) for each in collectives])
    cells = [[f"{count} x", *row] for row, count in rows.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    title = f"collectives: {len(collectives)}, each rank sends {bytes_text(total)}; before the wait for each stand"
    return [title, *[f"  {row}" for row in shown]]
