"""The passes, in order: from what was acquired to programs that executors run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from thunder_core.acquire.acquire import Acquired
from thunder_core.autodiff.differentiate import Differentiate
from thunder_core.autodiff.left_to_autograd import why_left_to_autograd
from thunder_core.autodiff.output_views import move_output_views
from thunder_core.autodiff.partition import Partition
from thunder_core.executors.executor import Decision, Executor
from thunder_core.executors.installed import resolve_executors
from thunder_core.guards.source import ConstantSource, Source
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.claim import Claim
from thunder_core.passes.common_subexpression import CommonSubexpression
from thunder_core.passes.constant_folding import ConstantFolding, Folded
from thunder_core.passes.dead_code import DeadCode
from thunder_core.passes.delete_last_use import DeleteLastUse
from thunder_core.passes.explicit_autocast import ExplicitAutocast, leaves_among
from thunder_core.passes.functionalize import Functionalize, Functionalized
from thunder_core.passes.pass_manager import PassManager
from thunder_core.passes.reinplace import Reinplace
from thunder_core.report.training_report import TrainingReport
from thunder_core.runtime.differentiated import DifferentiatedProgram
from thunder_core.runtime.options import Options
from thunder_core.runtime.training import training_report


@dataclass(frozen=True)
class Program:
    """What the passes made of a program.

    Attributes:
        traces: at each stage; acquired first, as executed last.
        backward_traces: of backward: the joint trace, backward, backward as executed; empty without gradients.
        final: as executed: the forward program.
        differentiated: forward and backward for the runtime; None where PyTorch's autograd records the program, if any.
        functional: where results come from.
        sources, objects: of the inputs of ``final``: where they are found, and what they were this time.
        executors: number of lines by executor.
        training: how the program was differentiated; None if it was not.
        left_to_autograd: why PyTorch's autograd records the program while it runs; None if it need not.
    """

    traces: tuple[Trace, ...]
    backward_traces: tuple[Trace, ...]
    final: Trace
    differentiated: DifferentiatedProgram | None
    functional: Functionalized
    sources: tuple[Source, ...]
    objects: tuple[Any, ...]
    executors: dict[str, int]
    training: TrainingReport | None = None
    left_to_autograd: str | None = None


def transform(manager: PassManager, acquired: Acquired, options: Options) -> Program:
    """Run all passes."""
    functional = manager.run(Functionalize(acquired.leaves), acquired.trace)
    computation = manager.run(DeadCode(), functional.computation)
    computation = manager.run(ExplicitAutocast(leaves_among(acquired.trace.inputs, acquired.inputs)), computation)
    functional = replace(functional, computation=computation)
    executors = resolve_executors(options.executors)
    if not _requires_grad(functional.computation):
        return _for_inference(manager, acquired, functional, executors)
    reason = why_left_to_autograd(functional.computation)
    if reason is not None:  # autograd knows how to differentiate PyTorch's own implementations only
        return replace(_for_inference(manager, acquired, functional, ()), left_to_autograd=reason)
    program = _for_training(manager, acquired, functional, options, executors)
    return program or _for_inference(manager, acquired, functional, executors)


def _for_inference(
    manager: PassManager, acquired: Acquired, functional: Functionalized, executors: tuple[Executor, ...]
) -> Program:
    computation = manager.run(CommonSubexpression(functional.donated), functional.computation)
    folded = manager.run(ConstantFolding(keep=functional.donated), computation)
    functional = manager.run(Reinplace(functional), folded.trace)
    claimed = manager.run(Claim(executors), functional.computation)
    final = manager.run(DeleteLastUse(), claimed.trace)
    return Program(
        (acquired.trace, *(record.traces[0] for record in manager.records if record.traces)),
        (),
        final,
        None,
        functional,
        *_inputs(acquired, folded),
        _by_executor(claimed.decisions),
    )


def _for_training(
    manager: PassManager,
    acquired: Acquired,
    functional: Functionalized,
    options: Options,
    executors: tuple[Executor, ...],
) -> Program | None:
    """The program with a backward; None when none of its results has a gradient."""
    functional = move_output_views(functional)
    folded = manager.run(ConstantFolding(), functional.computation)
    joint = manager.run(Differentiate(executors, _overwritten(functional)), folded.trace)
    if joint is None:
        return None
    joint = joint.with_trace(manager.run(DeadCode(), joint.trace))
    joint = joint.with_trace(manager.run(CommonSubexpression(), joint.trace))
    partitioned = manager.run(Partition(joint, options.policy), joint.trace)
    claimed = manager.run(Claim(executors), partitioned.forward)
    final = manager.run(DeleteLastUse(), claimed.trace)
    traces = (acquired.trace, *(record.traces[0] for record in manager.records if record.traces))
    backward_claimed = manager.run(Claim(executors), partitioned.backward)
    backward = manager.run(DeleteLastUse(), backward_claimed.trace)
    differentiated = DifferentiatedProgram(
        joint, partitioned, final, backward, folded.trace, partial(_executable, executors)
    )
    return Program(
        traces,
        (joint.trace, partitioned.backward, backward),
        final,
        differentiated,
        functional,
        *_inputs(acquired, folded),
        _by_executor((*claimed.decisions, *backward_claimed.decisions)),
        training_report(joint, partitioned, options.policy),
    )


def _requires_grad(trace: Trace) -> bool:
    """Whether the program may have gradients."""
    return any(isinstance(proxy, TensorProxy) and proxy.requires_grad for proxy in trace.output)


def _executable(executors: tuple[Executor, ...], trace: Trace) -> Trace:
    """A trace that is made when it is needed, as executors run it."""
    return DeleteLastUse().run(Claim(executors).run(trace).trace)


def _overwritten(functional: Functionalized) -> frozenset[str]:
    """Inputs that the epilogue writes."""
    if functional.epilogue is None:
        return frozenset()
    return frozenset(name for bound in functional.epilogue.symbols for name in bound.effects.mutates)


def _inputs(acquired: Acquired, folded: Folded) -> tuple[tuple[Source, ...], tuple[Any, ...]]:
    sources = (*acquired.sources, *(ConstantSource(value, "folded constant") for value in folded.constants))
    return sources, (*acquired.inputs, *folded.constants)


def _by_executor(decisions: Iterable[tuple[Decision, ...]]) -> dict[str, int]:
    return dict(Counter(answers[-1].executor for answers in decisions))
