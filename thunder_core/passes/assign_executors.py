"""Ask the executors who runs what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from thunder_core.executors.decision import Claimed
from thunder_core.executors.executor import Executor
from thunder_core.executors.states import States
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.assignment import Assignment, AssignmentResult
from thunder_core.passes.fresh_values import FreshValues
from thunder_core.passes.fusion import Fusion
from thunder_core.passes.offers import Offers
from thunder_core.passes.pass_manager import Pass, TracePass


@dataclass(frozen=True)
class RewriteClaims(TracePass):
    """Replaces each line that its executor rewrites by what it is rewritten to; the others stay as they are.

    Runs before differentiation, so that gradients are those of the calls that are really made.

    Attributes:
        executors: in order of preference.
    """

    executors: Sequence[Executor] = ()

    def run(self, trace: Trace) -> Trace:
        if not any(executor.rewrites for executor in self.executors):
            return trace
        offers = Offers(self.executors, FreshValues.of(trace), trace.context)
        lines = [line for bound in trace.symbols for line in offers.rewritten(bound)]
        same = len(lines) == len(trace.symbols) and all(map(_is, lines, trace.symbols))
        return trace if same else trace.with_symbols(lines, self.name)


@dataclass(frozen=True)
class AssignExecutors(Pass[AssignmentResult]):
    """Gives each line to the first executor that claims it; all are asked before anything is rewritten.

    A line that nobody but the reference executor claims is lowered to core ATen if an executor takes such operators,
    and taken apart if one of them claims a part. Lines whose symbol belongs to an executor are that executor's. Lines
    that fusion executors claim become calls of regions.

    Attributes:
        executors: in order of preference. The reference executor follows them all.
        states: of the lines that need one.
    """

    produces: ClassVar[Stage | None] = Stage.EXECUTABLE

    executors: Sequence[Executor] = ()
    states: States = field(default_factory=States, compare=False)

    def run(self, trace: Trace) -> AssignmentResult:
        offers = Offers(self.executors, FreshValues.of(trace), trace.context)
        assignments = tuple([offers.offer(bound) for bound in trace.symbols])
        leaves = [leaf for assignment in assignments for leaf in assignment.leaves()]
        fusion = Fusion(trace, self.executors, offers)
        lines = fusion.run(leaves, _implemented)
        claimed = replace(trace.with_symbols(self.states.bind(tuple(lines)), self.name), stage=Stage.EXECUTABLE)
        if fusion.replaced:
            assignments = tuple([assignment.with_leaves(fusion.replaced) for assignment in assignments])
        return AssignmentResult(claimed, assignments)

    def traces(self, result: AssignmentResult) -> tuple[Trace, ...]:
        return (result.trace,)


def _implemented(assignment: Assignment) -> BoundSymbol:
    """The line as its executor runs it."""
    bound, claim = assignment.bound, assignment.answers[-1]
    if isinstance(claim, Claimed) and claim.implementation is not None:
        return replace(bound, symbol=claim.implementation)
    return bound


def _is(one: object, other: object) -> bool:
    return one is other
