"""What the executors of a list took of a program, and why they did not take the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thunder_core.report.decisions import LineDecisions


@dataclass(frozen=True)
class Claims:
    """In the order of the program, each once.

    Attributes:
        claimed: ``executor: symbol`` for the lines that they run or give the derivative of.
        declined: ``executor: symbol: reason``.
    """

    claimed: tuple[str, ...]
    declined: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why nothing is claimed; empty if something is."""
        if self.claimed:
            return ""
        return f"declined: {'; '.join(self.declined) or 'it claims none of these operations'}"


def claims_of(decisions: Sequence[LineDecisions], executors: Sequence[str]) -> Claims:
    """The claims of these executors."""
    lines = [line for decision in decisions for line in _with_parts(decision)]
    claimed = [f"{_with_variant(line)}: {line.symbol}" for line in lines if line.executor in executors]
    declined = [f"{name}: {line.symbol}: {reason}" for line in lines for name, reason in line.declined]
    return Claims(tuple(dict.fromkeys(claimed)), tuple(dict.fromkeys(declined)))


def _with_variant(line: LineDecisions) -> str:
    return f"{line.executor}.{line.variant}" if line.variant else line.executor


def _with_parts(line: LineDecisions) -> Iterator[LineDecisions]:
    """The line unless it was taken apart; then what became of it."""
    if not line.parts:
        yield line
    for part in line.parts:
        yield from _with_parts(part)
