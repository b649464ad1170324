"""From an acquired program to what executors run: which steps of the pipeline make it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from thunder_core.acquire.acquire import Acquired
from thunder_core.autodiff.as_recorded import why_as_recorded, why_left_to_autograd
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.tensor_hooks import check_no_requests
from thunder_core.config.settings import Settings
from thunder_core.errors import FunctionalizationError, UnsupportedError
from thunder_core.executors.compiled_regions import RegionCounts
from thunder_core.executors.states import States
from thunder_core.guards.source import ConstantSource, Source
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment, AssignmentResult
from thunder_core.passes.base import Phase
from thunder_core.passes.functionalize import Functionalized
from thunder_core.passes.pass_manager import PassManager
from thunder_core.report.compile_report import StageReport
from thunder_core.report.training_report import DerivativeReport, TrainingReport
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


def training_report(joint: Joint, partitioned: Partitioned, recompute: str | dict[str, float]) -> TrainingReport:
    """The report; ``recompute`` is the policy that ``partitioned`` follows."""
    names = {proxy.name for proxy in joint.primals}
    memories = {_memory(joint.outputs[position]) for position in joint.returned} - {None}
    inputs = sum(proxy.name in names for proxy in partitioned.saved)
    results = sum(_memory(proxy) in memories for proxy in partitioned.saved if proxy.name not in names)
    return TrainingReport(
        tuple([DerivativeReport(o.symbol, o.source, o.reason, count) for o, count in joint.origins.items()]),
        len(partitioned.forward.symbols),
        len(partitioned.backward.symbols),
        len(partitioned.saved) - inputs - results,
        partitioned.bytes_saved,
        results,
        inputs,
        len(partitioned.recomputed),
        recompute,
    )


def _memory(proxy: Proxy) -> int | None:
    return proxy.storage if isinstance(proxy, TensorProxy) else None


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
