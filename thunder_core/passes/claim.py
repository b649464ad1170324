"""Ask the executors who runs what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from thunder_core.errors import TraceError
from thunder_core.executors.executor import Claimed, Decision, Executor
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.pass_manager import Pass


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """An executable trace.

    Attributes:
        trace: the program, each line as its executor runs it.
        decisions: for each line of the trace that was claimed, the answers in the order they were given; the last is
            the claim.
    """

    trace: Trace
    decisions: tuple[tuple[Decision, ...], ...]


@dataclass(frozen=True)
class Claim(Pass[ClaimResult]):
    """Gives each line to the first executor that claims it; all are asked before anything is rewritten.

    Lines whose symbol belongs to an executor are that executor's.

    Attributes:
        executors: in order of preference. The reference executor follows them all.
    """

    produces: ClassVar[Stage | None] = Stage.EXECUTABLE

    executors: Sequence[Executor] = ()

    def run(self, trace: Trace) -> ClaimResult:
        executors = (*self.executors, REFERENCE)
        decisions = tuple([_decide(executors, bound) for bound in trace.symbols])
        symbols = [_implement(bound, answers[-1]) for bound, answers in zip(trace.symbols, decisions, strict=True)]
        claimed = replace(trace.with_symbols(symbols, self.name), stage=Stage.EXECUTABLE)
        return ClaimResult(claimed, decisions)

    def traces(self, result: ClaimResult) -> tuple[Trace, ...]:
        return (result.trace,)


def _decide(executors: Sequence[Executor], bound: BoundSymbol) -> tuple[Decision, ...]:
    if bound.symbol.executor is not None:
        return (Claimed(bound.symbol.executor),)
    answers: list[Decision] = []
    for executor in executors:
        answer = executor.claim(bound)
        answers.append(answer)
        if isinstance(answer, Claimed):
            return tuple(answers)
    raise TraceError(f"No executor claims {bound.symbol.name}", location=bound.location)


def _implement(bound: BoundSymbol, decision: Decision) -> BoundSymbol:
    if isinstance(decision, Claimed) and decision.implementation is not None:
        return replace(bound, symbol=decision.implementation)
    return bound
