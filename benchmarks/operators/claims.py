"""The operations of a program that executors claim, and the reasons why they decline others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from thunder.report.decisions import OpDecisions


@dataclass(frozen=True)
class Claims:
    """Claims and reasons in the order of the program, without duplicates.

    Attributes:
        claimed: ``executor: symbol`` for each operation that an executor runs or differentiates.
        declined: ``executor: symbol: reason`` for each operation that an executor declines.
    """

    claimed: tuple[str, ...]
    declined: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The reasons, if nothing is claimed; else empty."""
        if self.claimed:
            return ""
        return f"declined: {'; '.join(self.declined) or 'it claims none of these operations'}"


def claims_of(decisions: Sequence[OpDecisions], executors: Sequence[str]) -> Claims:
    """The claims and reasons of ``executors``."""
    lines = [line for decision in decisions for line in _with_parts(decision)]
    claimed = [f"{_with_variant(line)}: {line.symbol}" for line in lines if line.executor in executors]
    declined = [f"{name}: {line.symbol}: {reason}" for line in lines for name, reason in line.declined]
    return Claims(tuple(dict.fromkeys(claimed)), tuple(dict.fromkeys(declined)))


def _with_variant(line: OpDecisions) -> str:
    return f"{line.executor}.{line.variant}" if line.variant else line.executor


def _with_parts(line: OpDecisions) -> Iterator[OpDecisions]:
    """The decision, or those of its parts if the operation was decomposed."""
    if not line.parts:
        yield line
    for part in line.parts:
        yield from _with_parts(part)
