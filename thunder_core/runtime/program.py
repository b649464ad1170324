"""What the passes make of an acquired program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thunder_core.executors.compiled_regions import RegionCounts
from thunder_core.guards.source import Source
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.base import Phase
from thunder_core.passes.functionalize import Functionalized
from thunder_core.report.compile_report import StageReport
from thunder_core.report.training_report import TrainingReport
from thunder_core.runtime.differentiated import DifferentiatedProgram


@dataclass(frozen=True)
class Program:
    """What the passes made of a program.

    Attributes:
        traces: at each stage; acquired first, as executed last.
        final: as executed: the forward program.
        functional: where results come from.
        sources, objects: of the inputs of ``final``: where they are found, and what they were this time.
        assignments: who runs which line, by program; ``JOINT`` has the lines that were differentiated.
        regions: what became of regions of lines.
        backward_traces: of backward: the joint trace, backward, backward as executed; empty without gradients.
        differentiated: forward and backward for the runtime; None where PyTorch's autograd records the program, if any.
        training: how the program was differentiated; None if it was not.
        as_recorded: why the lines run as they were recorded, under PyTorch's autograd; None if they do not.
        notes: what transforms say for the report; more may follow when backwards are made later.
        later: the stages of these backwards, and of what computes second derivatives.
        unclaimed: calls that transforms would have put in place of lines, had an executor claimed them.
    """

    traces: tuple[Trace, ...]
    final: Trace
    functional: Functionalized
    sources: tuple[Source, ...]
    objects: tuple[Any, ...]
    assignments: dict[Phase, tuple[Assignment, ...]]
    regions: RegionCounts | None
    backward_traces: tuple[Trace, ...] = ()
    differentiated: DifferentiatedProgram | None = None
    training: TrainingReport | None = None
    as_recorded: str | None = None
    notes: list[object] = field(default_factory=list)
    later: list[StageReport] = field(default_factory=list)
    unclaimed: tuple[Assignment, ...] = ()

    @property
    def executed(self) -> tuple[Trace, ...]:
        """The programs that run: forward, backward, epilogue."""
        epilogue = self.functional.epilogue
        return (self.final, *self.backward_traces[-1:], *(() if epilogue is None else (epilogue,)))
