"""Times of operations as records and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thunder_plugin_debug.line import shortened


@dataclass(frozen=True, slots=True)
class TimingRecord:
    """The calls of one operation of the user's program, in all layers and compilations that run it in the same way.

    Attributes:
        phase: "inference", "forward" or "backward".
        operation: the computation.
        executor: the executor.
        place: the user's line as ``file:line in function``; empty if there is none.
        clock: "cpu", or the CUDA device whose events measured.
        calls: number of calls.
        total: seconds of all calls.
        share: its share of the total of all records.
    """

    phase: str
    operation: str
    executor: str
    place: str
    clock: str
    calls: int
    total: float
    share: float

    @property
    def mean(self) -> float:
        """Seconds per call."""
        return self.total / self.calls


def format_table(records: Sequence[TimingRecord], rows: int | None = None) -> str:
    """The records as text, in order; all, or the first ``rows`` and the sum of the others."""
    shown = records if rows is None else records[:rows]
    lines = [("total", "share", "calls", "mean", "clock", "phase", "executor", "operation", "line")]
    lines += [
        (
            _duration(record.total), f"{record.share:.1%}", str(record.calls), _duration(record.mean), record.clock,
            record.phase, record.executor, shortened(record.operation), record.place,
        )
        for record in shown
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ["  ".join(_aligned(line, widths)).rstrip() for line in lines]
    rest = records[len(shown) :]
    if rest:
        left = sum(record.total for record in rest)
        texts.append(f"{_duration(left)} in {len(rest)} more")
    return "\n".join(texts)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Numbers, which come first, are aligned to the right, other cells to the left."""
    return [
        cell.rjust(width) if column < 4 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
