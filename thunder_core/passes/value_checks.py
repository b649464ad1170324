"""Passes for programs with runtime checks of values: their order among other effects, and checks of sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.size import symbols_of
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes.base import Pass, PassContext
from thunder_core.symbols.checks import CHECK_SIZES, checked_value
from thunder_core.tracing.sizes import Sizes, active_sizes


@dataclass(frozen=True)
class ReportsLast(Pass[Trace]):
    """Moves ops that print, log or warn after the last check of a guessed value, in their order.

    If a check fails, another program runs from the start and would report a second time. In a functional trace values
    do not change, so that a later report is the same.
    """

    name: ClassVar[str] = "ReportsLast"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    def run(self, trace: Trace, context: PassContext) -> Trace:
        """The trace with these ops moved."""
        ops = trace.symbols
        last = max(index for index, bound in enumerate(ops) if Tag.GUESS in bound.symbol.tags)
        before = [bound for bound in ops[:last] if Tag.REPORT not in bound.symbol.tags]
        moved = [bound for bound in ops[:last] if Tag.REPORT in bound.symbol.tags]
        return trace.with_symbols([*before, ops[last], *moved, *ops[last + 1 :]], self.name)


@dataclass(frozen=True)
class CheckSizes(Pass[Trace]):
    """Inserts checks of facts about sizes after the ops that check the values from which these sizes come.

    It runs after all passes that may add facts. A fact about several sizes is checked after the last of them.
    """

    name: ClassVar[str] = "CheckSizes"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        sizes = active_sizes()
        assert sizes is not None
        return trace.with_symbols([op for bound in trace.symbols for op in _checked(bound, sizes)], self.name)


def _checked(bound: BoundSymbol, sizes: Sizes) -> Iterator[BoundSymbol]:
    """The op, followed by the check of its facts if there are any."""
    yield bound
    if Tag.GUESS not in bound.symbol.tags:
        return
    reader, args, expected = checked_value(bound)
    facts = sizes.facts_of_defined()
    symbols = dict.fromkeys(symbols_of(iterate_leaves(expected)))
    conditions = {fact.condition: fact for name in symbols for fact in facts.get(name, ())}
    if not conditions:
        return
    names = sorted({name for fact in conditions.values() for name in fact.symbols})
    symbols = {name: sizes.symbol(name) for name in names}
    location = next((fact.location for fact in conditions.values() if fact.location is not None), bound.location)
    arguments = (bound.args[0], tuple(conditions), symbols, reader, args, bound.args[-1])
    yield BoundSymbol(CHECK_SIZES, arguments, {}, None, Effects(external=True), bound.context, location)
