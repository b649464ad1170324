"""The transformation of a recorded program into the traces that executors run, by the steps of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from thunder_core.autodiff.as_recorded import why_as_recorded, why_left_to_autograd
from thunder_core.autodiff.derivatives.rules_guard import RulesGuard
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.partitioning.memory import peak_of_executable
from thunder_core.autodiff.tensor_hooks import check_no_requests
from thunder_core.checks.guard import Guard
from thunder_core.contract import Recording
from thunder_core.errors import FunctionalizationError, MemoryBudgetError, UnsupportedError
from thunder_core.executors.executor import RegionCounts
from thunder_core.executors.states import States
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import differentiable
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment, AssignmentResult
from thunder_core.passes.base import Phase
from thunder_core.passes.check_memory import does_not_fit
from thunder_core.passes.functionalize import Functionalized
from thunder_core.passes.pass_manager import PassManager, StageReport
from thunder_core.runtime.compilation import Compilation
from thunder_core.runtime.differentiated import DifferentiatedProgram
from thunder_core.runtime.pipeline import (
    ACQUIRED,
    AS_RECORDED,
    DIFFERENTIATION,
    EXPLICIT,
    FUNCTIONAL,
    INFERENCE,
    LEAVES,
    TRAINING,
    LatePrograms,
    Step,
    run,
)
from thunder_core.settings import Settings


@dataclass(frozen=True)
class ExecutableProgram:
    """The result of the passes for a program. It has no reference to inputs of the call.

    Attributes:
        traces: the forward program after each pass, from the acquired trace to the executable one.
        functional: the functionalized program, with the sources of its results.
        constants: the inputs that transforms added, by name: the last inputs of `final`.
        assignments: the executor of each op, by program; ``JOINT`` has the ops that were differentiated.
        regions: counts of the regions of fused ops, by how they were obtained; None without regions.
        backward_traces: the joint trace, and backward as partitioned and as executable; empty without gradients.
        differentiated: forward and backward for the runtime; None if PyTorch's autograd records the ops, or none does.
        as_recorded: why PyTorch runs the ops as they were recorded, under its autograd; None if executors run them.
        notes: notes of transforms for the report; backwards that are compiled later add others.
        later: the stages of these backwards, and of second derivatives.
        unclaimed: composites that no executor claimed.
    """

    traces: tuple[Trace, ...]
    functional: Functionalized
    constants: Mapping[str, torch.Tensor]
    assignments: Mapping[Phase, tuple[Assignment, ...]]
    regions: RegionCounts | None
    backward_traces: tuple[Trace, ...] = ()
    differentiated: DifferentiatedProgram | None = None
    as_recorded: str | None = None
    notes: list[object] = field(default_factory=list)
    later: list[StageReport] = field(default_factory=list)
    unclaimed: tuple[Assignment, ...] = ()

    @property
    def final(self) -> Trace:
        """The executable forward trace."""
        return self.traces[-1]

    @property
    def executed(self) -> dict[Phase, Trace]:
        """The executable traces, without the epilogue: that of inference, or forward and backward."""
        if not self.backward_traces:
            return {Phase.INFERENCE: self.final}
        return {Phase.FORWARD: self.final, Phase.BACKWARD: self.backward_traces[-1]}

    @property
    def guards(self) -> tuple[Guard, ...]:
        """What the passes depended on, besides the program."""
        return () if self.differentiated is None else (RulesGuard.of(self.differentiated.joint.rules),)

    def all_ops(self) -> list[BoundSymbol]:
        """The ops of all traces and of their bodies, and the ops that were offered to executors, with their parts."""
        traces = [part for trace in (*self.traces, *self.backward_traces) for part in trace.programs()]
        assignments = [*self.unclaimed, *(one for of_phase in self.assignments.values() for one in of_phase)]
        offered = [op for assignment in assignments for op in assignment.offered_ops()]
        return [*[op for trace in traces for op in trace.symbols], *offered]


def transform(manager: PassManager, recording: Recording, settings: Settings, states: States) -> ExecutableProgram:
    """Run all passes and transforms that the program takes."""
    return _Transformation(manager, recording).program(Compilation.of(recording, settings, states))


_TRIES: Final = 4
"""How often a smaller budget is tried."""


@dataclass(frozen=True)
class _Transformation:
    manager: PassManager
    recording: Recording

    def program(self, compilation: Compilation) -> ExecutableProgram:
        recorded = self._run(ACQUIRED, compilation)
        values = self._run(LEAVES, recorded)
        reason = why_as_recorded(values.trace) if self.recording.raised is None else "it ends with an exception"
        if reason is not None:
            return self._as_recorded(recorded, reason)
        try:
            functional = self._run(FUNCTIONAL, values)
        except (FunctionalizationError, UnsupportedError) as error:
            return self._as_recorded(recorded, str(error.problem))
        explicit = self._run(EXPLICIT, functional)
        if not any(map(differentiable, explicit.trace.output)):
            return self._inference(explicit)
        reason = why_left_to_autograd(explicit.trace)
        if reason is not None:
            return self._as_recorded(recorded, reason)
        differentiated = self._run(DIFFERENTIATION, explicit)
        return self._training(differentiated) if Joint in differentiated.results else self._inference(explicit)

    def _run(self, steps: tuple[Step, ...], compilation: Compilation) -> Compilation:
        return run(self.manager, steps, compilation)

    def _as_recorded(self, compilation: Compilation, reason: str) -> ExecutableProgram:
        """The program whose ops PyTorch runs under autograd, which can differentiate PyTorch's functions only."""
        if self.recording.raised is None:
            check_no_requests(compilation.trace, reason)
        after = self._run(AS_RECORDED, replace(compilation, executors=()))
        assignments = {Phase.INFERENCE: after.result(AssignmentResult).assignments}
        return replace(self._program(after, assignments), as_recorded=reason)

    def _inference(self, compilation: Compilation) -> ExecutableProgram:
        after = self._run(INFERENCE, compilation)
        assignments = {Phase.INFERENCE: after.result(AssignmentResult).assignments}
        return self._program(after, assignments)

    def _training(self, differentiated: Compilation) -> ExecutableProgram:
        after = self._within_budget(differentiated)
        joint = after.result(Joint).with_trace(after.traces[Phase.JOINT])
        partitioned, forward = after.result(Partitioned), after.result(AssignmentResult)
        (backward,) = forward.others
        final, backward_final = after.traces[Phase.FORWARD], after.traces[Phase.BACKWARD]
        late = LatePrograms(after.without_programs(), sizes=self.recording.sizes.symbols)
        assignments = {
            Phase.JOINT: tuple([Assignment(bound, decisions) for bound, decisions in joint.offered]),
            Phase.FORWARD: forward.assignments,
            Phase.BACKWARD: backward.assignments,
        }
        return replace(
            self._program(after, assignments),
            backward_traces=(joint.trace, partitioned.backward, backward_final),
            differentiated=DifferentiatedProgram(
                joint, partitioned, final, backward_final, after.trace, late, self.recording.calls_classes
            ),
            later=late.stages,
        )

    def _within_budget(self, differentiated: Compilation) -> Compilation:
        """The compilation after `TRAINING`, repeated with a smaller budget if the executable programs exceed theirs.

        They may need more than the partition predicts: a fusion region holds all of its arguments and results.

        Raises:
            MemoryBudgetError: no partition is within the budget.
        """
        budget, given = differentiated.memory, differentiated
        records, notes = len(self.manager.records), len(given.notes)
        after = self._run(TRAINING, given)
        for _ in range(_TRIES if budget is not None else 0):
            assert budget is not None
            joint = after.result(Joint)
            peak, programs, returned = peak_of_executable(
                joint, after.traces[Phase.FORWARD], after.traces[Phase.BACKWARD]
            )
            chosen = after.result(Partitioned).memory
            if peak.bytes <= budget or chosen is None:
                break
            del self.manager.records[records:], given.notes[notes:]
            try:
                after = self._run(TRAINING, replace(given, memory=chosen.peak - (peak.bytes - budget)))
            except MemoryBudgetError:
                raise does_not_fit(budget, peak, programs, returned) from None
        return replace(after, memory=budget)

    def _program(self, compilation: Compilation, assignments: dict[Phase, tuple[Assignment, ...]]) -> ExecutableProgram:
        records = [record for record in self.manager.records if record.traces and record.phase is not Phase.BACKWARD]
        return ExecutableProgram(
            traces=(self.recording.trace, *[record.traces[0] for record in records]),
            functional=compilation.result(Functionalized),
            constants=compilation.constants,
            assignments=assignments,
            regions=compilation.result(AssignmentResult).regions,
            notes=compilation.notes,
            unclaimed=compilation.unclaimed,
        )
