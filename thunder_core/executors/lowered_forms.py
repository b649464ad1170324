"""Core-ATen forms of lines, kept on disk: to trace them takes most of the time in which executors are asked."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.executors.kept_lines import KeptLines
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.symbols import lowering
from thunder_core.symbols.lowering import Form


def lowered_form(bound: BoundSymbol, ambient: Context) -> Form:
    """`thunder_core.symbols.lowering.lowered_form`, which other processes may have found.

    Raises LoweringError as that does.
    """
    return lowering.lowered_form(bound, ambient, _KEPT)


class _KeptForms:
    """By the key of the line, where all of it means the same in every process."""

    lines: Final = KeptLines("core-ATen forms 1")

    def read(self, key: Any, bound: BoundSymbol) -> Form | None:
        return self.lines.read(key, bound)

    def write(self, key: Any, form: Form) -> None:
        self.lines.write(key, *form)


_KEPT: Final = _KeptForms()
