"""Recognize composites in programs that spell them out, and replace them where an executor has a kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.checkpoint_bodies import in_checkpoints
from thunder_core.passes.patterns.found import Found, Program
from thunder_core.passes.patterns.matching import ends
from thunder_core.passes.patterns.offering import CompositeOffers, takes_whole
from thunder_core.passes.patterns.pattern import Pattern
from thunder_core.passes.patterns.recording import sampled
from thunder_core.passes.patterns.table import all_patterns
from thunder_core.passes.rewrite import Rule, rewrite
from thunder_core.symbols.registry import registry

Rows = Mapping[Symbol, Sequence[tuple[Pattern, frozenset[Symbol]]]]
"""The patterns of composites that executors run, by what they `ends` with."""


@dataclass(frozen=True, slots=True)
class Recognized:
    """The result of the pass.

    Attributes:
        trace: the program with calls of composites.
        unclaimed: matches that were not replaced, with the decisions of the executors.
    """

    trace: Trace
    unclaimed: tuple[Assignment, ...] = ()


@dataclass(frozen=True)
class RecognizeComposites(Pass[Recognized]):
    """Replaces lines that spell a composite out by a call of it, where an executor claims that.

    Runs before differentiation, so that executors give the derivative too. Only composites that some executor runs are
    looked for, also in the bodies of checkpoints. All else stays as it is: what nobody claims; what a fusion executor
    takes that is asked before; and what cannot be one call, because other lines read a value inside of it or its lines
    run under different modes.
    """

    name: ClassVar[str] = "RecognizeComposites"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    def run(self, trace: Trace, context: PassContext) -> Recognized:
        rows = _rows(context.executors)
        unclaimed: list[Assignment] = []
        if rows:
            trace = self._with_composites(trace, context.executors, rows, unclaimed)
        return Recognized(trace, tuple(reversed(unclaimed)))

    def _with_composites(
        self, trace: Trace, executors: Sequence[Executor], rows: Rows, unclaimed: list[Assignment]
    ) -> Trace:
        trace = in_checkpoints(trace, lambda body: self._with_composites(body, executors, rows, unclaimed))
        program, offers = Program(trace), CompositeOffers(executors, trace)

        def claimed(found: Found) -> tuple[BoundSymbol] | None:
            reason = program.obstacle(found)
            answers = offers.refuse(found.composite, reason) if reason else offers.ask(found)
            if takes_whole(executors, answers):
                return (found.composite,)
            unclaimed.append(Assignment(found.composite, answers))
            return None

        rule = Rule(lambda line: _candidates(program, line, rows), claimed)
        return rewrite(trace, [rule], self.name, backwards=True)

    def traces(self, result: Recognized) -> tuple[Trace, ...]:
        return (result.trace,)


def _rows(executors: Sequence[Executor]) -> Rows:
    wanted = {symbol for executor in executors for symbol in executor.composites}
    found: dict[Symbol, list[tuple[Pattern, frozenset[Symbol]]]] = defaultdict(list)
    for pattern in all_patterns() if wanted else ():
        if registry.symbol_of(pattern.composite) in wanted:
            for symbol, before in ends(sampled(pattern)):
                found[symbol].append((pattern, before))
    return found


def _candidates(program: Program, line: BoundSymbol, rows: Rows) -> Iterator[Found]:
    """What a line may be the end of, in the order of the table: of one composite for the same lines the first."""
    patterns = rows.get(line.symbol)
    if not patterns:
        return
    producers = [program.trace.producer(proxy.name) for proxy in line.inputs()]
    symbols = {producer.symbol for producer in producers if producer is not None}
    seen: set[tuple[Symbol, frozenset[int]]] = set()
    for pattern, before in patterns:
        found = program.find(pattern, line) if not before or before & symbols else None
        if found is not None:
            key = found.composite.symbol, frozenset(map(id, found.lines))
            if key not in seen:
                seen.add(key)
                yield found
