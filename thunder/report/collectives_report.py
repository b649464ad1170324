"""The report of a program's collectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from thunder.report.amounts import bytes_text, counted, operations_text


@dataclass(frozen=True)
class CollectiveReport:
    """One op of a program that communicates.

    Attributes:
        phase: the program: "inference", "forward" or "backward".
        kind: the kind of operator: ``all_reduce``, ``all_gather`` and the like.
        symbol: the name of the op's symbol.
        location: the user's line; None if there is none.
        group, ranks: the name of the process group, and how many ranks it has.
        tensors: the number of tensors that it transfers.
        bytes: the bytes that each rank sends, by the algorithms that send the least: ``2 (ranks - 1) / ranks`` of the
            tensors for an all-reduce, ``(ranks - 1) / ranks`` of the whole for a gather or a scatter.
        lines: the number of ops that compute between this op and the one that waits for it; None if none waits.
        flops: the floating-point operations of these ops, as far as they are known.
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
    flops: int

    def cells(self) -> list[str]:
        """The report as cells of a row: program, operator, group, bytes sent, ops before the wait, the user's line."""
        between = "not waited for"
        if self.lines is not None:
            work = f"{counted(self.lines, 'operation')} ({operations_text(self.flops)})" if self.lines else "nothing"
            between = f"{work} before the wait"
        group = f"group {self.group!r} of {counted(self.ranks, 'rank')}"
        operator = f"{self.kind} of {counted(self.tensors, 'tensor')}"
        return [self.phase, operator, group, bytes_text(self.bytes), between, self.location or ""]


def collective_lines(collectives: Sequence[CollectiveReport]) -> list[str]:
    """The reports as text: a line for equal ones, with their number."""
    if not collectives:
        return []
    total = sum(each.bytes for each in collectives)
    rows = Counter([tuple(each.cells()) for each in collectives])
    cells = [[f"{count} x", *row] for row, count in rows.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    title = f"collectives: {len(collectives)}, each rank sends {bytes_text(total)}"
    return [title, *[f"  {row}" for row in shown]]
