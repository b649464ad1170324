"""Who runs a line, and who does not: what the executors answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from thunder_core.executors.compiled_regions import RegionCounts
from thunder_core.executors.decision import Decision
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """One line.

    Attributes:
        bound: the line that was offered.
        answers: in the order they were given. The last is the claim, unless the line was taken apart.
        parts: what it was taken apart into: what an executor rewrote it to, or core-ATen operators of which an executor
            claims one.
    """

    bound: BoundSymbol
    answers: tuple[Decision, ...]
    parts: tuple[Assignment, ...] = ()

    @property
    def executor(self) -> str:
        """Who runs the line."""
        return self.answers[-1].executor

    def leaves(self) -> tuple[Assignment, ...]:
        """The lines that run."""
        return tuple([leaf for part in self.parts for leaf in part.leaves()]) if self.parts else (self,)

    def with_leaves(self, others: Mapping[Assignment, Assignment]) -> Assignment:
        """The same with some leaves replaced."""
        if not self.parts:
            return others.get(self, self)
        return replace(self, parts=tuple([part.with_leaves(others) for part in self.parts]))


@dataclass(frozen=True, slots=True)
class AssignmentResult:
    """An executable trace, and for each line that was offered, in order, what became of it.

    Attributes:
        others: the same for other traces that were given at the same time.
        regions: of all of them, if any were fused.
    """

    trace: Trace
    assignments: tuple[Assignment, ...]
    others: tuple[AssignmentResult, ...] = ()
    regions: RegionCounts | None = None
