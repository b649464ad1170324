"""Who runs which line of a compiled program, and why others do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PATTERN: Final = "pattern"


@dataclass(frozen=True)
class LineDecisions:
    """The decisions of the executors about one line.

    Attributes:
        phase: the program it stands in: "inference", "forward" or "backward"; "joint" for a line as it was before it
            was differentiated, when executors may give its derivative; "pattern" for a composite that the program
            spells out, and that did not take the place of its lines. These follow in the other phases.
        symbol: what it calls.
        outputs: names of its results.
        location: the user's line; None if there is none.
        executor: who runs the line, or gave its derivative. Of a line that was taken apart, who would have. Of a
            composite the one who fuses its lines, or "its parts".
        declined: the executors earlier in the list that declined, with their reasons.
        parts: what the line was taken apart into.
        bytes: memory that it reads and writes, at least: that of its arguments and results.
        flops: floating-point operations by PyTorch's counters; None for operations that these do not know.
        variant: which of its implementations the executor takes, where it has several and says so. Those that it
            prefers are among ``declined``, as ``executor.variant``.
    """

    phase: str
    symbol: str
    outputs: tuple[str, ...]
    location: str | None
    executor: str
    declined: tuple[tuple[str, str], ...] = ()
    parts: tuple[LineDecisions, ...] = ()
    bytes: int | None = None
    flops: int | None = None
    variant: str = ""

    def leaves(self) -> Sequence[LineDecisions]:
        """The lines that run."""
        return [leaf for part in self.parts for leaf in part.leaves()] if self.parts else [self]


@dataclass(frozen=True)
class Share:
    """What one executor runs of a program. Fractions of bytes and operations count only lines whose number is known."""

    executor: str
    lines: int
    bytes: float
    flops: float


def shares(decisions: Sequence[LineDecisions]) -> tuple[Share, ...]:
    """The executors' shares of the lines that run, the most lines first."""
    leaves = [leaf for line in decisions if line.phase not in ("joint", PATTERN) for leaf in line.leaves()]
    all_bytes = sum(leaf.bytes or 0 for leaf in leaves) or 1
    all_flops = sum(leaf.flops or 0 for leaf in leaves) or 1
    found = []
    for name in dict.fromkeys(leaf.executor for leaf in leaves):
        own = [leaf for leaf in leaves if leaf.executor == name]
        moved, done = sum(leaf.bytes or 0 for leaf in own), sum(leaf.flops or 0 for leaf in own)
        found.append(Share(name, len(own), moved / all_bytes, done / all_flops))
    return tuple(sorted(found, key=lambda share: -share.lines))


def share_lines(decisions: Sequence[LineDecisions]) -> list[str]:
    """The shares as text."""
    rows = [
        f"{share.lines} by {share.executor} ({share.bytes:.0%} of bytes, {share.flops:.0%} of operations)"
        for share in shares(decisions)
    ]
    return [f"lines claimed: {', '.join(rows) or 'none'}"]


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
