"""Ask the executors who runs what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from thunder_core.executors.compiled_regions import RegionCounts
from thunder_core.executors.decision import Claimed
from thunder_core.executors.disk_tables import save_tables
from thunder_core.executors.executor import Executor
from thunder_core.executors.states import States
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.assignment import Assignment, AssignmentResult, Offers
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.checkpoint_bodies import in_checkpoints
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.region_calls import RegionCalls, take_regions


@dataclass(frozen=True)
class RewriteClaims(Pass[Trace]):
    """Replaces each line that its executor rewrites, and each pattern of lines; the others stay as they are.

    So it does in the bodies of checkpoint regions.

    Runs before differentiation, so that gradients are those of the calls that run.
    """

    name: ClassVar[str] = "RewriteClaims"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        rewriting = any(executor.rewrites for executor in context.executors)
        return self._rewritten(trace, context.executors) if rewriting else trace

    def _rewritten(self, trace: Trace, executors: Sequence[Executor]) -> Trace:
        trace = in_checkpoints(trace, lambda body: self._rewritten(body, executors))
        offers = Offers(executors, Builder.of(trace), trace.context)
        lines: list[BoundSymbol] = []
        producers: dict[str, BoundSymbol] = {}
        for bound in trace.symbols:
            for line in offers.rewritten(bound, producers):
                lines.append(line)
                producers.update([(proxy.name, line) for proxy in line.outputs()])
        same = len(lines) == len(trace.symbols) and all(map(_is, lines, trace.symbols))
        return trace if same else without_dead_code(trace.with_symbols(lines, self.name))


@dataclass(frozen=True)
class AssignExecutors(Pass[AssignmentResult]):
    """Gives each line to the first executor that claims it; all lines are offered before any is rewritten.

    A line that nobody but the reference executor claims is lowered to core ATen if an executor takes such operators,
    and taken apart if one of them claims a part. Lines whose symbol belongs to an executor are that executor's. Lines
    that an executor runs together become calls of regions (`Executor.partition`).

    Attributes:
        states: of the lines that need one.
        others: further traces; regions of all of them are compiled together.
        unfused: names of values whose lines stay out of regions, because `Reinplace` may have them written in place.
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
            RegionCalls(single, executors, own, self.unfused) for single, own in zip(traces, offers, strict=True)
        ]
        asked = [
            tuple([own.offer(bound) for bound in single.symbols]) for single, own in zip(traces, offers, strict=True)
        ]
        for program, own in zip(programs, asked, strict=True):
            program.start([leaf for assignment in own for leaf in assignment.leaves()])
        counts = take_regions(programs, executors) + RegionCounts(notes=tuple(save_tables()))
        first, *others = map(self._result, asked, programs)
        return replace(first, others=tuple(others), regions=counts)

    def traces(self, result: AssignmentResult) -> tuple[Trace, ...]:
        return (result.trace, *[other.trace for other in result.others])

    def _result(self, asked: tuple[Assignment, ...], program: RegionCalls) -> AssignmentResult:
        lines = self.states.bind(tuple(program.lines(_implemented)))
        claimed = replace(program.trace.with_symbols(lines, self.name), stage=Stage.EXECUTABLE)
        if program.replaced:
            asked = tuple([assignment.with_leaves(program.replaced) for assignment in asked])
        return AssignmentResult(claimed, asked)


def _implemented(assignment: Assignment) -> BoundSymbol:
    """The line as its executor runs it."""
    bound, claim = assignment.bound, assignment.answers[-1]
    if isinstance(claim, Claimed) and claim.implementation is not None:
        return replace(bound, symbol=claim.implementation)
    return bound


def _is(one: object, other: object) -> bool:
    return one is other
