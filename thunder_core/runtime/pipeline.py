"""The pipeline: tuples of steps, which transform an acquired trace into the traces that run.

A program runs through these tuples, in order:

| program | steps |
|---|---|
| all | `ACQUIRED` |
| without a functional form | `AS_RECORDED` |
| with a functional form | `LEAVES`, `FUNCTIONAL`, `EXPLICIT` |
| ... without gradients | `INFERENCE` |
| ... with gradients | `DIFFERENTIATION`, `TRAINING` |
| backward for some of the cotangents or gradients, when a call first needs it | `_late_backward` |
| the program for second derivatives, when a call first needs it | `_SECOND_DERIVATIVES` |

`thunder_core.runtime.transform` selects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from thunder_core.autodiff.differentiate import Differentiate
from thunder_core.autodiff.inner_leaves import InnerLeaves, makes_leaves
from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.output_views import MoveOutputViews
from thunder_core.autodiff.partitioning.partition import Partition
from thunder_core.autodiff.zero_cotangents import ZeroCotangents
from thunder_core.executors.executor import fusing
from thunder_core.executors.states import States
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.assign_executors import AssignExecutors, RewriteClaims
from thunder_core.passes.base import Pass, PassContext, Phase, Place
from thunder_core.passes.check_memory import CheckMemory
from thunder_core.passes.checkpoint_regions import FunctionalBodies, InlineCheckpoints
from thunder_core.passes.dead_code import DeadCode
from thunder_core.passes.delete_last_use import DeleteLastUse
from thunder_core.passes.explicit_autocast import ExplicitAutocast
from thunder_core.passes.functionalize import FromComputation, Functionalize, Functionalized, LeaveAsRecorded
from thunder_core.passes.pass_manager import PassManager, StageReport
from thunder_core.passes.reinplace import Reinplace, ReinplaceParts
from thunder_core.passes.value_checks import CheckSizes, ReportsLast
from thunder_core.runtime.compilation import Compilation
from thunder_core.runtime.own_state import own_state
from thunder_core.tracing.sizes import Sizes, active_sizes, compiling_with


def _always(compilation: Compilation) -> bool:
    return True


@dataclass(frozen=True)
class Step:
    """One step of a pipeline: a pass, or the transforms of a place.

    Attributes:
        action: a pass; a function that creates one from the compilation; or a place, for the configured transforms.
        on: the program that it transforms. ``INFERENCE`` is also the program before differentiation.
        when: the condition under which it runs.
    """

    action: Pass[Any] | Callable[[Compilation], Pass[Any]] | Place
    on: Phase = Phase.INFERENCE
    when: Callable[[Compilation], bool] = _always

    def passes(self, compilation: Compilation, context: PassContext) -> Iterator[Pass[Any]]:
        """The passes of the step: one pass, or the transforms of the place that apply."""
        if isinstance(self.action, Place):
            for transform in compilation.transforms:
                if (self.action is transform.place or self.action in transform.also) and transform.applies(context):
                    yield transform
        else:
            yield self.action if isinstance(self.action, Pass) else self.action(compilation)


def run(manager: PassManager, steps: tuple[Step, ...], compilation: Compilation) -> Compilation:
    """Run the steps in order, in the state in which the programs will run; returns the compilation after the last one.

    Executors trace regions with PyTorch's operators, which autocast would give other dtypes than the programs have.
    """
    with own_state(torch.get_default_dtype()):
        for step in steps:
            if not step.when(compilation):
                continue
            place = step.action if isinstance(step.action, Place) else None
            context = compilation.context(step.on, place)
            for each in step.passes(compilation, context):
                result = manager.run(each, compilation.traces[step.on], context)
                compilation = compilation.after(step.on, result)
            compilation = compilation.with_additions(context)
    return compilation


# ---- conditions ------------------------------------------------------------------------------------------------------


def _has_executors(compilation: Compilation) -> bool:
    return bool(compilation.executors)


def _checks_values(compilation: Compilation) -> bool:
    return any(Tag.GUESS in bound.symbol.tags for bound in compilation.trace.symbols)


def _makes_leaves(compilation: Compilation) -> bool:
    return makes_leaves(compilation.trace)


def _has_budget(compilation: Compilation) -> bool:
    return compilation.memory is not None


def _defines_sizes(compilation: Compilation) -> bool:
    sizes = active_sizes()
    return sizes is not None and bool(sizes.defined)


def _fuses_writes_of_parts(compilation: Compilation) -> bool:
    return bool(fusing(compilation.executors) and compilation.result(Functionalized).partial_writes)


# ---- passes that take results of earlier steps -----------------------------------------------------------------------


def _functionalize(compilation: Compilation) -> Functionalize:
    return Functionalize(compilation.leaves, compilation.families)


def _explicit_autocast(compilation: Compilation) -> ExplicitAutocast:
    return ExplicitAutocast(compilation.cast_once)


def _move_output_views(compilation: Compilation) -> MoveOutputViews:
    return MoveOutputViews(compilation.result(Functionalized))


def _differentiate(compilation: Compilation) -> Differentiate:
    functional = compilation.result(Functionalized)
    written = functional.epilogue.symbols if functional.epilogue is not None else ()
    overwritten = frozenset([name for bound in written for name in bound.effects.mutates])
    returned = frozenset([source.index for source in functional.results if isinstance(source, FromComputation)])
    return Differentiate(overwritten, returned)


def _partition(compilation: Compilation) -> Partition:
    return Partition(compilation.result(Joint), compilation.policy, compilation.memory)


def _check_memory(compilation: Compilation) -> CheckMemory:
    assert compilation.memory is not None
    return CheckMemory(compilation.memory)


def _reinplace_parts(compilation: Compilation) -> ReinplaceParts:
    return ReinplaceParts(compilation.result(Functionalized))


def _assign(compilation: Compilation) -> AssignExecutors:
    return AssignExecutors(compilation.states)


def _assign_in_place(compilation: Compilation) -> AssignExecutors:
    return AssignExecutors(compilation.states, unfused=compilation.result(Functionalized).unfused)


def _assign_forward_and_backward(compilation: Compilation) -> AssignExecutors:
    return AssignExecutors(compilation.states, (compilation.traces[Phase.BACKWARD],))


def _reinplace(compilation: Compilation) -> Reinplace:
    return Reinplace(compilation.result(Functionalized))


# ---- the programs ----------------------------------------------------------------------------------------------------


def _executable(*phases: Phase) -> tuple[Step, ...]:
    """The steps from claimed programs to executable ones."""
    places = [Step(place, phase) for phase in phases for place in (Place.CLAIMED, Place.LAST)]
    checks = [Step(CheckSizes(), phase, when=_defines_sizes) for phase in phases if phase is not Phase.BACKWARD]
    return (*places, *checks, *[Step(DeleteLastUse(), phase) for phase in phases])


_FOR_EXECUTORS: Final = (
    Step(FunctionalBodies()),
    Step(Place.BEFORE_CLAIMS),
    Step(RewriteClaims(), when=_has_executors),
    Step(Place.BEFORE_DIFFERENTIATION),
)
"""The bodies of checkpoint regions, the rewrites of executors, and the transforms before and after these."""

ACQUIRED: Final = (Step(Place.ACQUIRED),)

LEAVES: Final = (Step(InnerLeaves(), when=_makes_leaves),)

AS_RECORDED: Final = (
    Step(LeaveAsRecorded()),
    Step(_assign),
    *_executable(Phase.INFERENCE),
)

FUNCTIONAL: Final = (
    Step(_functionalize),
    Step(ReportsLast(), when=_checks_values),
)

EXPLICIT: Final = (
    Step(DeadCode()),
    Step(_explicit_autocast),
)

INFERENCE: Final = (
    Step(InlineCheckpoints()),
    *_FOR_EXECUTORS,
    Step(Place.AFTER_DIFFERENTIATION),
    Step(Place.PARTITIONED),
    Step(_reinplace_parts, when=_fuses_writes_of_parts),
    Step(_assign_in_place),
    Step(_reinplace),
    *_executable(Phase.INFERENCE),
    Step(_check_memory, when=_has_budget),
)

DIFFERENTIATION: Final = (
    Step(_move_output_views),
    *_FOR_EXECUTORS,
    Step(_differentiate),
)
"""The result is a `Joint`, unless no result of the program has a gradient."""

TRAINING: Final = (
    Step(DeadCode(), Phase.JOINT),
    Step(Place.AFTER_DIFFERENTIATION, Phase.JOINT),
    Step(_partition, Phase.JOINT),
    Step(Place.PARTITIONED, Phase.FORWARD),
    Step(Place.PARTITIONED, Phase.BACKWARD),
    Step(_assign_forward_and_backward, Phase.FORWARD),
    *_executable(Phase.FORWARD, Phase.BACKWARD),
)

_LATE_BACKWARD: Final = (
    Step(Place.PARTITIONED, Phase.BACKWARD),
    Step(_assign, Phase.BACKWARD),
    *_executable(Phase.BACKWARD),
)


def _late_backward(specialization: ZeroCotangents) -> tuple[Step, ...]:
    """The steps from the partitioned backward to an executable one for some of its cotangents and gradients."""
    return (Step(specialization, Phase.BACKWARD), *_LATE_BACKWARD)


_SECOND_DERIVATIVES: Final = (
    Step(_assign),
    Step(DeleteLastUse()),
)
"""No executors or transforms: the program runs under autograd, which can differentiate PyTorch's functions only."""


@dataclass(frozen=True)
class LatePrograms:
    """Compiles programs later. It has no references to inputs of a call or to intermediate traces.

    Attributes:
        compilation: the first compilation, without its traces.
        stages: the stages of all programs that it compiled.
        sizes: the size symbols of the compilation; None if all sizes are constants.
    """

    compilation: Compilation
    stages: list[StageReport] = field(default_factory=list)
    sizes: Sizes | None = None

    def backward(self, trace: Trace, specialization: ZeroCotangents) -> tuple[Trace, Trace]:
        """A backward for some cotangents and gradients. Returns the functional and the executable trace.

        Args:
            trace: backward as it was partitioned.
            specialization: the pass for the absent cotangents and the gradients that are not needed.
        """
        return self._run(_late_backward(specialization), Phase.BACKWARD, trace, self.compilation)

    def second_derivatives(self, trace: Trace) -> Trace:
        """The executable trace of the program before differentiation, to run under autograd."""
        alone = replace(self.compilation, executors=(), states=States())
        return self._run(_SECOND_DERIVATIVES, Phase.INFERENCE, trace, alone)[-1]

    def _run(
        self, steps: tuple[Step, ...], phase: Phase, trace: Trace, compilation: Compilation
    ) -> tuple[Trace, Trace]:
        manager = PassManager()
        with compiling_with(self.sizes):
            after = run(manager, steps, replace(compilation, traces={phase: trace}))
        self.stages.extend(map(StageReport.of, manager.records))
        return manager.records[0].traces[0], after.traces[phase]
