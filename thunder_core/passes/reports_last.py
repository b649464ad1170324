"""What a program prints, logs and warns of, after the checks of values that may end its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext


@dataclass(frozen=True)
class ReportsLast(Pass[Trace]):
    """Moves the lines that tell the user something behind the last check of a value, in their order.

    A run that ends at a check starts anew with another program, which would tell it a second time. In a functional
    trace values do not change, so a line tells the same later.
    """

    name: ClassVar[str] = "ReportsLast"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    def run(self, trace: Trace, context: PassContext) -> Trace:
        """The trace with these lines moved."""
        lines = trace.symbols
        last = max(index for index, bound in enumerate(lines) if Tag.GUESS in bound.symbol.tags)
        before = [bound for bound in lines[:last] if Tag.REPORT not in bound.symbol.tags]
        moved = [bound for bound in lines[:last] if Tag.REPORT in bound.symbol.tags]
        return trace.with_symbols([*before, lines[last], *moved, *lines[last + 1 :]], self.name)
