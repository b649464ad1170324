"""Recognition of composites in programs, and their replacement if an executor has a kernel.

A pattern is a Python function. It is traced on a sample, and the trace is matched with the program backwards from its
last operation, which gives the arguments (`recognition.matching`). Then it is traced on their metadata, and all
constants and casts must be equal (`recognition.templates`): sizes, dtypes and ``eps`` of a match are exact. A match
that an executor claims becomes one operation; others stay unchanged, and the report shows the decisions. For the 22
layers of TinyLlama this takes 2 % of the compile time with Inductor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.checkpoint_regions import in_checkpoints
from thunder_core.passes.rewrite import Rule, rewrite
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_core.symbols.registry import registry
from thunder_plugin_composites.recognition.matching import ends
from thunder_plugin_composites.recognition.offers import CompositeOffers, takes_whole
from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.recognition.search import PatternMatch, Program
from thunder_plugin_composites.recognition.table import all_patterns
from thunder_plugin_composites.recognition.templates import sampled

Rows = Mapping[Symbol, Sequence[tuple[Pattern, frozenset[Symbol]]]]
"""The patterns of composites that executors claim, by their `ends`."""


@dataclass(frozen=True)
class RecognizeComposites(Transform):
    """Replaces the operations of a composite by a call of it, if an executor claims that.

    Runs before differentiation, so that executors also provide the derivative. It searches for composites that an
    executor claims, also in the bodies of checkpoints. Operations are not replaced if no executor claims the composite,
    if a preceding fusion executor fuses them, or if they cannot be one call because other operations read intermediate
    values or their contexts differ.
    """

    name: ClassVar[str] = "recognize_composites"
    place: ClassVar[Place] = Place.BEFORE_CLAIMS
    verified: ClassVar[bool] = False

    def applies(self, context: TransformContext) -> bool:
        return any(executor.composites for executor in context.executors)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        rows = _rows(context.executors)
        if not rows:
            return trace
        unclaimed: list[Assignment] = []
        result = self._with_composites(trace, context.executors, rows, unclaimed)
        context.unclaimed.extend(reversed(unclaimed))
        return result

    def _with_composites(
        self, trace: Trace, executors: Sequence[Executor], rows: Rows, unclaimed: list[Assignment]
    ) -> Trace:
        trace = in_checkpoints(trace, lambda body, _: self._with_composites(body, executors, rows, unclaimed))
        program, offers = Program(trace), CompositeOffers(executors, trace)

        def claimed(match: PatternMatch) -> tuple[BoundSymbol] | None:
            reason = program.obstacle(match)
            decisions = offers.refuse(match.composite, reason) if reason else offers.decisions(match)
            if takes_whole(executors, decisions):
                return (match.composite,)
            unclaimed.append(Assignment(match.composite, decisions))
            return None

        rule = Rule(lambda op: _candidates(program, op, rows), claimed)
        return rewrite(trace, [rule], self.name, backwards=True)


def _rows(executors: Sequence[Executor]) -> Rows:
    wanted = {symbol for executor in executors for symbol in executor.composites}
    rows: dict[Symbol, list[tuple[Pattern, frozenset[Symbol]]]] = defaultdict(list)
    for pattern in all_patterns():
        if registry.symbol_of(pattern.composite) in wanted:
            for symbol, before in ends(sampled(pattern)):
                rows[symbol].append((pattern, before))
    return rows


def _candidates(program: Program, op: BoundSymbol, rows: Rows) -> Iterator[PatternMatch]:
    """The matches that end with an operation, in the order of the table, without equal ones."""
    patterns = rows.get(op.symbol)
    if not patterns:
        return
    producers = [program.trace.producer(proxy.name) for proxy in op.inputs()]
    symbols = {producer.symbol for producer in producers if producer is not None}
    seen: set[tuple[Symbol, frozenset[int]]] = set()
    for pattern, before in patterns:
        match = program.find(pattern, op) if not before or before & symbols else None
        if match is not None:
            key = match.composite.symbol, frozenset(map(id, match.ops))
            if key not in seen:
                seen.add(key)
                yield match
