"""Lines as bytes, for tables that processes share."""

from __future__ import annotations

import io
import pickle
from collections.abc import Hashable
from typing import Any

from thunder_core.executors.hardware import hardware, software, source_hash
from thunder_core.executors.kept_tables import KeptTable, kept_table
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.key_text import key_text
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.symbols.registry import registry


def table_of_lines(title: str, *packages: str) -> KeptTable | None:
    """The table of that title; None where nothing is kept on disk.

    ``packages`` are imported packages, besides those that define lines, whose code the answers come from.
    """
    code = " ".join([source_hash(package) for package in ("thunder_core.ir", "thunder_core.symbols", *packages)])
    return kept_table(f"{title}\n{software()}\n{code}")


def question(key: Hashable, bound: BoundSymbol) -> str | None:
    """What is asked about a line, by a key; None where something in it means something in this process only.

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


def as_bytes(value: Any) -> bytes | None:
    """Lines, and what contains them; None for those that only this process knows."""
    file = io.BytesIO()
    try:
        _Writer(file).dump(value)
    except pickle.PicklingError:
        return None
    return file.getvalue()


def from_bytes(data: bytes) -> Any:
    """What `as_bytes` was given. Raises LookupError for an operator of a package that is not imported here."""
    return _Reader(io.BytesIO(data)).load()


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
