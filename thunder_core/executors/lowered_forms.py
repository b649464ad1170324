"""Core-ATen forms of lines, kept on disk: to trace them takes most of the time in which executors are asked."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from typing import Any, Final

from thunder_core.executors.hardware import software, source_hash
from thunder_core.executors.kept_tables import KeptTable, kept_table
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.key_text import key_text
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.symbols import lowering
from thunder_core.symbols.lowering import Form
from thunder_core.symbols.registry import registry

_FORMAT: Final = "core-ATen forms 1"


def lowered_form(bound: BoundSymbol, ambient: Context) -> Form:
    """`thunder_core.symbols.lowering.lowered_form`, which other processes may have found.

    Raises LoweringError as that does.
    """
    return lowering.lowered_form(bound, ambient, _KEPT)


class _KeptForms:
    """By the key of the line, where all of it means the same in every process."""

    def read(self, key: Any, bound: BoundSymbol) -> Form | None:
        table, question = _table(), _question(key, bound)
        data = None if table is None or question is None else table.get(question)
        if data is None:
            return None
        try:
            args, kwargs, output, parts = _Reader(io.BytesIO(data)).load()
        except LookupError:  # an operator of a package that is not imported here
            return None
        return replace(bound, args=args, kwargs=kwargs, output=output), parts

    def write(self, key: Any, form: Form) -> None:
        bound, parts = form
        table, question = _table(), _question(key, bound)
        if table is None or question is None:
            return
        file = io.BytesIO()
        try:
            _Writer(file).dump((bound.args, bound.kwargs, bound.output, parts))
        except pickle.PicklingError:  # something that only this process knows
            return
        table.put(question, file.getvalue())


_KEPT: Final = _KeptForms()


def _table() -> KeptTable | None:
    code = f"{source_hash('thunder_core.ir')} {source_hash('thunder_core.symbols')}"
    return kept_table(f"{_FORMAT}\n{software()}\n{code}")


def _question(key: Any, bound: BoundSymbol) -> str | None:
    own = bound.symbol.decomposition
    known = own is None or own.__module__.split(".")[0] in ("torch", "thunder_core")
    return key_text(key) if known else None


class _Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        """Symbols by name, as far as the registry knows them by it."""
        if not isinstance(value, Symbol):
            return None
        if key_text((value,)) is None or registry.symbol_named(value.name, value.style) is not value:
            raise pickle.PicklingError(f"{value.name} may be another symbol elsewhere")
        return f"{value.style.name} {value.name}"


class _Reader(pickle.Unpickler):
    def persistent_load(self, name: str) -> Symbol:
        """The symbol of the name."""
        style, _, own = name.partition(" ")
        return registry.symbol_named(own, CallStyle[style])
