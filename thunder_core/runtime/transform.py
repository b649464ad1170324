"""The passes, in order: from what was acquired to programs that executors run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from thunder_core.acquire.acquire import Acquired
from thunder_core.autodiff.as_recorded import why_as_recorded, why_left_to_autograd
from thunder_core.autodiff.checkpoint import InlineCheckpoints
from thunder_core.autodiff.differentiate import Differentiate
from thunder_core.autodiff.output_views import move_output_views
from thunder_core.autodiff.partition import Partition
from thunder_core.config.settings import Settings
from thunder_core.errors import FunctionalizationError, UnsupportedError
from thunder_core.executors.executor import Executor
from thunder_core.executors.states import States
from thunder_core.guards.source import ConstantSource
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.assign_executors import AssignExecutors
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.compiled_regions import RegionCounts
from thunder_core.passes.dead_code import DeadCode
from thunder_core.passes.direct_views import DirectViews
from thunder_core.passes.explicit_autocast import ExplicitAutocast, leaves_among
from thunder_core.passes.functionalize import FromComputation, Functionalize, Functionalized, unchanged
from thunder_core.passes.pass_manager import PassManager
from thunder_core.passes.reinplace import Reinplace
from thunder_core.passes.reinplace_parts import ReinplaceParts
from thunder_core.passes.transform import Phase, Place
from thunder_core.runtime.configured_transforms import ConfiguredTransforms
from thunder_core.runtime.differentiated import DifferentiatedProgram
from thunder_core.runtime.lasting import computed_for_backward, static_inputs
from thunder_core.runtime.preparation import fusing, prepared
from thunder_core.runtime.program import Program
from thunder_core.runtime.training import training_report


def transform(manager: PassManager, acquired: Acquired, settings: Settings, states: States) -> Program:
    """Run all passes and transforms."""
    transforms = ConfiguredTransforms(manager, settings.transforms, settings.executors)
    return _Pipeline(manager, acquired, settings, states, transforms).run()


@dataclass(frozen=True)
class _Pipeline:
    manager: PassManager
    acquired: Acquired
    settings: Settings
    states: States
    transforms: ConfiguredTransforms

    def run(self) -> Program:
        trace = self.transforms.run(Place.ACQUIRED, self.acquired.trace)
        reason = why_as_recorded(trace) if self.acquired.raised is None else "it ends with an exception"
        if reason is not None:
            return self._as_recorded(trace, reason)
        try:
            functional = self.manager.run(Functionalize(self.acquired.leaves, self.acquired.families), trace)
        except (FunctionalizationError, UnsupportedError) as error:
            return self._as_recorded(trace, str(error.problem))
        computation = self.manager.run(DeadCode(), functional.computation)
        computation = self.manager.run(ExplicitAutocast(leaves_among(trace.inputs, self.acquired.inputs)), computation)
        functional = replace(functional, computation=computation)
        executors = self.settings.executors
        if not _requires_grad(computation):
            return self._for_inference(functional, executors)
        reason = why_left_to_autograd(computation)
        if reason is not None:
            return self._as_recorded(trace, reason)
        return self._for_training(functional) or self._for_inference(functional, executors)

    def _as_recorded(self, trace: Trace, reason: str) -> Program:
        """PyTorch runs each line, its autograd records them: it knows how to differentiate its own functions only."""
        functional = unchanged(trace, "as recorded", trace.stage)
        assigned = self.manager.run(AssignExecutors((), self.states), functional.computation)
        final = self.transforms.finish(assigned.trace, Phase.INFERENCE, static_inputs(self.acquired, {}))
        assignments = {Phase.INFERENCE: assigned.assignments}
        return self._program(final, functional, assignments, assigned.regions, as_recorded=reason)

    def _for_inference(self, functional: Functionalized, executors: tuple[Executor, ...]) -> Program:
        keep = functional.donated
        inlined = self.manager.run(InlineCheckpoints(), functional.computation)
        functional = replace(functional, computation=inlined)
        functional, constants, unclaimed = prepared(self.manager, self.transforms, functional, executors, keep)
        trace, static = functional.computation, static_inputs(self.acquired, constants)
        for place in (Place.AFTER_DIFFERENTIATION, Place.PARTITIONED):
            trace = self.transforms.run(place, trace, Phase.INFERENCE, functional.donated, static=static)
        if fusing(executors) and functional.partial_writes:
            functional = self.manager.run(ReinplaceParts(functional), trace)
            trace = functional.computation
        assign = AssignExecutors(executors, self.states, unfused=functional.partial_writes)
        assigned = self.manager.run(assign, trace)
        functional = self.manager.run(Reinplace(functional), assigned.trace)
        computation = _viewed(self.manager, DirectViews(fusing(executors)), functional.computation)
        final = self.transforms.finish(computation, Phase.INFERENCE, static)
        assignments = {Phase.INFERENCE: assigned.assignments}
        return self._program(final, functional, assignments, assigned.regions, constants, unclaimed=unclaimed)

    def _for_training(self, functional: Functionalized) -> Program | None:
        """The program with a backward; None when none of its results has a gradient."""
        executors = self.settings.executors
        functional = move_output_views(functional)
        functional, constants, unclaimed = prepared(self.manager, self.transforms, functional, executors)
        original = functional.computation
        joint = self.manager.run(Differentiate(executors, _overwritten(functional), _returned(functional)), original)
        if joint is None:
            return None
        joint = joint.with_trace(self.manager.run(DeadCode(), joint.trace))
        joint = joint.with_trace(self.transforms.run(Place.AFTER_DIFFERENTIATION, joint.trace, Phase.JOINT))
        policy = self.settings.policy
        partitioned = self.manager.run(Partition(joint, policy, bool(fusing(executors))), joint.trace)
        half = self.transforms.run(Place.PARTITIONED, partitioned.forward, Phase.FORWARD)
        traces = self._made()
        other = self.transforms.run(Place.PARTITIONED, partitioned.backward, Phase.BACKWARD)
        count = len(self.manager.records)
        forward = self.manager.run(AssignExecutors(executors, self.states, (other,)), half)
        (backward,) = forward.others
        static, kept = static_inputs(self.acquired, constants), computed_for_backward(partitioned)
        views = DirectViews(fusing(executors))
        trace = _viewed(self.manager, views, forward.trace)
        final = self.transforms.finish(trace, Phase.FORWARD, static, kept)
        traces += self._made(count)
        views = replace(views, unsure=views.unsure_of(forward.trace))
        trace = _viewed(self.manager, views, backward.trace)
        backward_final = self.transforms.finish(trace, Phase.BACKWARD, static, kept)
        plain = self.acquired.has_subclasses
        unmanaged = replace(self.transforms, manager=PassManager())
        claim = partial(_executable, executors, self.states, unmanaged, static, kept, views)  # keeps no inputs alive
        differentiated = DifferentiatedProgram(joint, partitioned, final, backward_final, original, claim, plain)
        offered = tuple([Assignment(bound, answers) for bound, answers in joint.offered])
        assignments = {Phase.JOINT: offered, Phase.FORWARD: forward.assignments, Phase.BACKWARD: backward.assignments}
        return self._program(
            final,
            functional,
            assignments,
            forward.regions,
            constants,
            traces,
            backward_traces=(joint.trace, partitioned.backward, backward_final),
            differentiated=differentiated,
            training=training_report(joint, partitioned, policy),
            unclaimed=unclaimed,
        )

    def _made(self, start: int = 0) -> tuple[Trace, ...]:
        """The traces that passes made, from the one of that number on."""
        return tuple([record.traces[0] for record in self.manager.records[start:] if record.traces])

    def _program(
        self,
        final: Trace,
        functional: Functionalized,
        assignments: dict[Phase, tuple[Assignment, ...]],
        regions: RegionCounts | None,
        constants: Mapping[str, torch.Tensor] = MappingProxyType({}),
        traces: tuple[Trace, ...] | None = None,
        **more: Any,
    ) -> Program:
        """A `Program` whose last inputs are ``constants``.

        Args:
            traces: what passes made of the forward program; absent: all that they made.
        """
        sources = [ConstantSource(value, "made by a transform") for value in constants.values()]
        return Program(
            traces=(self.acquired.trace, *(self._made() if traces is None else traces)),
            final=final,
            functional=functional,
            sources=(*self.acquired.sources, *sources),
            objects=(*self.acquired.inputs, *constants.values()),
            assignments=assignments,
            regions=regions,
            notes=self.transforms.notes,
            **more,
        )


def _executable(
    executors: tuple[Executor, ...],
    states: States,
    transforms: ConfiguredTransforms,
    static: frozenset[str],
    saved: frozenset[str],
    views: DirectViews,
    trace: Trace,
) -> Trace:
    """A backward that is made when it is needed, as executors run it."""
    manager = PassManager()
    transforms = replace(transforms, manager=manager)
    trace = transforms.run(Place.PARTITIONED, trace, Phase.BACKWARD)
    assigned = manager.run(AssignExecutors(executors, states), trace)
    return transforms.finish(_viewed(manager, views, assigned.trace), Phase.BACKWARD, static, saved)


def _viewed(manager: PassManager, views: DirectViews, trace: Trace) -> Trace:
    return manager.run(views, trace) if views.fusion else trace


def _requires_grad(trace: Trace) -> bool:
    """Whether the program may have gradients."""
    return any(isinstance(proxy, TensorProxy) and proxy.requires_grad for proxy in trace.output)


def _returned(functional: Functionalized) -> frozenset[int]:
    """Positions of the computation's outputs that the caller gets."""
    return frozenset(source.index for source in functional.results if isinstance(source, FromComputation))


def _overwritten(functional: Functionalized) -> frozenset[str]:
    """Inputs that the epilogue writes."""
    if functional.epilogue is None:
        return frozenset()
    return frozenset(name for bound in functional.epilogue.symbols for name in bound.effects.mutates)
