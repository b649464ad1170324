"""From an acquired program to what executors run: which steps of the pipeline make it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from thunder_core.acquire.acquire import Acquired
from thunder_core.autodiff.as_recorded import why_as_recorded, why_left_to_autograd
from thunder_core.autodiff.input_gradients import check_no_requests
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.config.settings import Settings
from thunder_core.errors import FunctionalizationError, UnsupportedError
from thunder_core.executors.states import States
from thunder_core.guards.source import ConstantSource
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment, AssignmentResult
from thunder_core.passes.base import Phase
from thunder_core.passes.functionalize import Functionalized
from thunder_core.passes.pass_manager import PassManager
from thunder_core.runtime.compilation import Compilation
from thunder_core.runtime.differentiated import DifferentiatedProgram
from thunder_core.runtime.late_programs import LatePrograms
from thunder_core.runtime.pipeline import (
    ACQUIRED,
    AS_RECORDED,
    DIFFERENTIATION,
    EXPLICIT,
    FUNCTIONAL,
    INFERENCE,
    TRAINING,
    Step,
    run,
)
from thunder_core.runtime.program import Program
from thunder_core.runtime.training import training_report


def transform(manager: PassManager, acquired: Acquired, settings: Settings, states: States) -> Program:
    """Run all passes and transforms that the program takes."""
    return _Transformation(manager, acquired).program(Compilation.of(acquired, settings, states))


@dataclass(frozen=True)
class _Transformation:
    manager: PassManager
    acquired: Acquired

    def program(self, compilation: Compilation) -> Program:
        recorded = self._run(ACQUIRED, compilation)
        reason = why_as_recorded(recorded.trace) if self.acquired.raised is None else "it ends with an exception"
        if reason is not None:
            return self._as_recorded(recorded, reason)
        try:
            functional = self._run(FUNCTIONAL, recorded)
        except (FunctionalizationError, UnsupportedError) as error:
            return self._as_recorded(recorded, str(error.problem))
        explicit = self._run(EXPLICIT, functional)
        if not _requires_grad(explicit.trace):
            return self._inference(explicit)
        reason = why_left_to_autograd(explicit.trace)
        if reason is not None:
            return self._as_recorded(recorded, reason)
        differentiated = self._run(DIFFERENTIATION, explicit)
        return self._training(differentiated) if Joint in differentiated.results else self._inference(explicit)

    def _run(self, steps: tuple[Step, ...], compilation: Compilation) -> Compilation:
        return run(self.manager, steps, compilation)

    def _as_recorded(self, compilation: Compilation, reason: str) -> Program:
        """PyTorch runs each line, its autograd records them: it knows how to differentiate its own functions only."""
        if self.acquired.raised is None:
            check_no_requests(compilation.trace, reason)
        made = self._run(AS_RECORDED, replace(compilation, executors=()))
        assignments = {Phase.INFERENCE: made.result(AssignmentResult).assignments}
        return replace(self._program(made, made.trace, assignments), as_recorded=reason)

    def _inference(self, compilation: Compilation) -> Program:
        made = self._run(INFERENCE, compilation)
        assignments = {Phase.INFERENCE: made.result(AssignmentResult).assignments}
        return self._program(made, made.trace, assignments)

    def _training(self, differentiated: Compilation) -> Program:
        made = self._run(TRAINING, differentiated)
        joint = made.result(Joint).with_trace(made.traces[Phase.JOINT])
        partitioned, forward = made.result(Partitioned), made.result(AssignmentResult)
        (backward,) = forward.others
        final, backward_final = made.traces[Phase.FORWARD], made.traces[Phase.BACKWARD]
        late = LatePrograms(made.without_programs(), sizes=self.acquired.sizes)
        assignments = {
            Phase.JOINT: tuple([Assignment(bound, answers) for bound, answers in joint.offered]),
            Phase.FORWARD: forward.assignments,
            Phase.BACKWARD: backward.assignments,
        }
        return replace(
            self._program(made, final, assignments),
            backward_traces=(joint.trace, partitioned.backward, backward_final),
            differentiated=DifferentiatedProgram(
                joint, partitioned, final, backward_final, made.trace, late, self.acquired.has_subclasses
            ),
            training=training_report(joint, partitioned, made.policy),
            later=late.stages,
        )

    def _program(
        self, compilation: Compilation, final: Trace, assignments: dict[Phase, tuple[Assignment, ...]]
    ) -> Program:
        """A `Program` whose last inputs are the constants of transforms."""
        records = [record for record in self.manager.records if record.traces and record.phase is not Phase.BACKWARD]
        sources = [ConstantSource(value, "made by a transform") for value in compilation.constants.values()]
        return Program(
            traces=(self.acquired.trace, *[record.traces[0] for record in records]),
            final=final,
            functional=compilation.result(Functionalized),
            sources=(*self.acquired.sources, *sources),
            objects=(*self.acquired.inputs, *compilation.constants.values()),
            assignments=assignments,
            regions=compilation.result(AssignmentResult).regions,
            notes=compilation.notes,
            unclaimed=compilation.unclaimed,
        )


def _requires_grad(trace: Trace) -> bool:
    """Whether the program may have gradients."""
    return any(isinstance(proxy, TensorProxy) and proxy.requires_grad for proxy in trace.output)
