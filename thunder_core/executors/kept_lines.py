"""Results for lines, in tables that processes share."""

from __future__ import annotations

import io
import pickle
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from thunder_core.executors.hardware import hardware, software
from thunder_core.executors.kept_tables import KeptTable, kept_table
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.key_text import key_text
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.symbols.registry import registry


@dataclass(frozen=True, slots=True)
class KeptLines:
    """A table of results for lines.

    Attributes:
        title: of the table.
    """

    title: str

    def read(self, key: Hashable, bound: BoundSymbol) -> tuple[BoundSymbol, Any] | None:
        """A line equal to ``bound`` but for names, and what was written with it; None where there is nothing."""
        table, question = self._table(), _question(key, bound)
        data = None if table is None or question is None else table.get(question)
        if data is None:
            return None
        try:
            args, kwargs, output, value = _Reader(io.BytesIO(data)).load()
        except LookupError:  # an operator of a package that is not imported here
            return None
        return replace(bound, args=args, kwargs=kwargs, output=output), value

    def write(self, key: Hashable, bound: BoundSymbol, value: Any) -> None:
        """Keep ``value``, which has lines in it that work on the values of ``bound``, if that can be done."""
        table, question = self._table(), _question(key, bound)
        if table is None or question is None:
            return
        file = io.BytesIO()
        try:
            _Writer(file).dump((bound.args, bound.kwargs, bound.output, value))
        except pickle.PicklingError:  # something that only this process knows
            return
        table.put(question, file.getvalue())

    def _table(self) -> KeptTable | None:
        return kept_table(f"{self.title}\n{software()}")


def _question(key: Hashable, bound: BoundSymbol) -> str | None:
    """The text that identifies a line, by a key; None where something in it means something in this process only.

    With the hardware: which kernels PyTorch calls may depend on it.
    """
    own = bound.symbol.decomposition
    known = own is None or own.__module__.split(".")[0] in ("torch", "thunder_core")
    text = key_text(key) if known else None
    if text is None:
        return None
    values = [value for value in (*bound.inputs(), *bound.outputs()) if isinstance(value, TensorProxy)]
    devices = sorted({value.device for value in values}, key=str)
    return "\n".join([text, *map(hardware, devices)])


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
