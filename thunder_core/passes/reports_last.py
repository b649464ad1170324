"""Move prints, logs and warnings of a program after its checks of guessed values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext


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
