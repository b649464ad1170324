"""Assign an executor to each op of a trace."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from thunder_core.executors.decision import Claimed
from thunder_core.executors.disk_tables import save_tables
from thunder_core.executors.executor import Executor, RegionCounts
from thunder_core.executors.states import States
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.assignment import Assignment, AssignmentResult, Offers
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.checkpoint_regions import in_checkpoints
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.region_calls import RegionCalls, take_regions


@dataclass(frozen=True)
class RewriteClaims(Pass[Trace]):
    """Applies the rewrites of executors to single ops and to patterns of ops, also in bodies of checkpoint regions.

    Runs before differentiation, so that gradients are those of the ops that run.
    """

    name: ClassVar[str] = "RewriteClaims"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        rewriting = any(executor.rewrites for executor in context.executors)
        return self._rewritten(trace, context.executors) if rewriting else trace

    def _rewritten(self, trace: Trace, executors: Sequence[Executor]) -> Trace:
        trace = in_checkpoints(trace, lambda body, _: self._rewritten(body, executors))
        offers = Offers(executors, Builder.of(trace), trace.context)
        ops: list[BoundSymbol] = []
        producers: dict[str, BoundSymbol] = {}
        for bound in trace.symbols:
            for op in offers.rewritten(bound, producers):
                ops.append(op)
                producers.update([(proxy.name, op) for proxy in op.outputs()])
        same = len(ops) == len(trace.symbols) and all(map(operator.is_, ops, trace.symbols))
        return trace if same else without_dead_code(trace.with_symbols(ops, self.name))


@dataclass(frozen=True)
class AssignExecutors(Pass[AssignmentResult]):
    """Assigns each op to the first executor that claims it; all ops are offered before any is rewritten.

    An op that only the reference executor claims is lowered to core ATen if an executor claims such operators; the
    lowered ops replace it if an executor claims one of them. An op whose symbol belongs to an executor is assigned to
    that executor. Ops that an executor fuses become calls of regions (`Executor.partition`).

    Attributes:
        states: the states of ops that need one.
        others: further traces; regions of all traces are compiled together.
        unfused: names of values whose ops stay out of regions, because `Reinplace` may make them write in place.
    """

    name: ClassVar[str] = "AssignExecutors"
    produces: ClassVar[Stage | None] = Stage.EXECUTABLE

    states: States = field(default_factory=States, compare=False)
    others: tuple[Trace, ...] = ()
    unfused: frozenset[str] = frozenset()

    def run(self, trace: Trace, context: PassContext) -> AssignmentResult:
        executors = context.executors  # the reference executor follows them all
        traces = (trace, *self.others)
        offers = [Offers(executors, Builder.of(single), single.context) for single in traces]
        programs = [
            RegionCalls(single, executors, offer, self.unfused) for single, offer in zip(traces, offers, strict=True)
        ]
        assignments = [tuple(map(offer.offer, single.symbols)) for single, offer in zip(traces, offers, strict=True)]
        for program, assigned in zip(programs, assignments, strict=True):
            program.start([leaf for assignment in assigned for leaf in assignment.leaves()])
        counts = take_regions(programs, executors) + RegionCounts(notes=tuple(save_tables()))
        first, *others = map(self._result, assignments, programs)
        return replace(first, others=tuple(others), regions=counts)

    def traces(self, result: AssignmentResult) -> tuple[Trace, ...]:
        return (result.trace, *[other.trace for other in result.others])

    def _result(self, assignments: tuple[Assignment, ...], program: RegionCalls) -> AssignmentResult:
        ops = self.states.bind(tuple(program.ops(_implemented)))
        claimed = replace(program.trace.with_symbols(ops, self.name), stage=Stage.EXECUTABLE)
        if program.replaced:
            assignments = tuple([assignment.with_leaves(program.replaced) for assignment in assignments])
        return AssignmentResult(claimed, assignments)


def _implemented(assignment: Assignment) -> BoundSymbol:
    """The op with the implementation of its executor as symbol, if its claim names one."""
    bound, claim = assignment.bound, assignment.decisions[-1]
    if isinstance(claim, Claimed) and claim.implementation is not None:
        return replace(bound, symbol=claim.implementation)
    return bound
