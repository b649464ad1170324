"""Core-ATen forms of lines on disk: tracing them takes most of the time in which lines are offered to executors."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.executors.kept_lines import KeptLines
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.trace import Trace
from thunder_core.tracing import lowering


def lowered_form(bound: BoundSymbol, ambient: Context) -> Trace:
    """`thunder_core.tracing.lowering.lowered_form`, or the form that another process stored.

    Raises LoweringError as that does.
    """
    return lowering.lowered_form(bound, ambient, _KEPT)


class _KeptForms:
    """By the key of the line, where all of it means the same in every process."""

    lines: Final = KeptLines("core-ATen forms 2")

    def read(self, key: Any, bound: BoundSymbol) -> Trace | None:
        found = self.lines.read(key, bound)
        return None if found is None else found[1]

    def write(self, key: Any, bound: BoundSymbol, form: Trace) -> None:
        self.lines.write(key, bound, form)


_KEPT: Final = _KeptForms()
