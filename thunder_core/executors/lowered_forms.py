"""Core-ATen forms of lines, kept on disk: to trace them takes most of the time in which executors are asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from thunder_core.executors.kept_lines import as_bytes, from_bytes, question, table_of_lines
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.symbols import lowering
from thunder_core.symbols.lowering import Form

_TITLE: Final = "core-ATen forms 1"


def lowered_form(bound: BoundSymbol, ambient: Context) -> Form:
    """`thunder_core.symbols.lowering.lowered_form`, which other processes may have found.

    Raises LoweringError as that does.
    """
    return lowering.lowered_form(bound, ambient, _KEPT)


class _KeptForms:
    """By the key of the line, where all of it means the same in every process."""

    def read(self, key: Any, bound: BoundSymbol) -> Form | None:
        table, asked = table_of_lines(_TITLE), question(key, bound)
        data = None if table is None or asked is None else table.get(asked)
        if data is None:
            return None
        try:
            args, kwargs, output, parts = from_bytes(data)
        except LookupError:
            return None
        return replace(bound, args=args, kwargs=kwargs, output=output), parts

    def write(self, key: Any, form: Form) -> None:
        bound, parts = form
        table, asked = table_of_lines(_TITLE), question(key, bound)
        if table is None or asked is None:
            return
        data = as_bytes((bound.args, bound.kwargs, bound.output, parts))
        if data is not None:
            table.put(asked, data)


_KEPT: Final = _KeptForms()
