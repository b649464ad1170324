"""Tables on disk of results per op, shared by processes: decisions of executors, core-ATen forms, derivatives, casts.

Computing such a result takes calls on fake tensors, or libraries that take long to import, and it is the same in every
process. A table is read on first use. It is written after a compilation, merged with the entries that other processes
wrote in the meantime.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pickle
import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import torch

from thunder_core.executors.artifacts import ArtifactCache, DamagedArtifact, artifact_cache, hardware, software
from thunder_core.forking import renew_in_child
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_of
from thunder_core.ir.context import Context
from thunder_core.ir.effects import Effects
from thunder_core.ir.keys import key_text
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import PROXY_TYPES, NumberProxy, OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.symbols.admitted import is_admitted, is_function_for_traces, static_value
from thunder_core.symbols.registry import registry
from thunder_core.tracing import lowering

_MOST: Final = 4096
"""Entries of a table; those that were not read are dropped first."""


@dataclass(slots=True, eq=False)
class DiskTable:
    """A persistent dictionary from text to bytes, a JSON file.

    Attributes:
        cache: the folder.
        key: identifies the table; it includes everything that all entries depend on besides their keys.
    """

    cache: ArtifactCache
    key: str
    _known: dict[str, str] = field(default_factory=dict)
    _used: dict[str, str] = field(default_factory=dict)
    _invalid: set[str] = field(default_factory=set)
    _new: bool = False
    _notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known = self._read()

    def get(self, key: str) -> bytes | None:
        """The entry; None if there is none."""
        short = _short(key)
        value = self._known.get(short)
        if value is None:
            return None
        try:
            data = base64.b64decode(value, validate=True)
        except ValueError:
            self.discard(key, "it is not text of the alphabet of base64")
            return None
        self._used[short] = value
        return data

    def put(self, key: str, value: bytes) -> None:
        """Add an entry; other processes get it after the next `save_tables`."""
        short = _short(key)
        self._known[short] = self._used[short] = base64.b64encode(value).decode()
        self._new = True

    def discard(self, key: str, reason: str) -> None:
        """Remove an entry that cannot be used, from the file with the next `save_tables`."""
        short = _short(key)
        self._known.pop(short, None)
        self._used.pop(short, None)
        self._invalid.add(short)
        self._new = True
        self._note(reason)

    def save(self) -> list[str]:
        """Write the table if it has new entries. Returns a sentence for each problem."""
        if self._new:
            left_out = self._used.keys() | self._invalid
            merged = {key: value for key, value in self._read().items() if key not in left_out}
            merged.update(self._used)
            reason = self.cache.put(self.key, json.dumps(dict([*merged.items()][-_MOST:])).encode())
            self._new = reason is not None
            if reason is not None:
                self._notes.append(f"results for ops are not stored on disk, because {reason}")
        notes, self._notes = self._notes, []
        return notes

    def _read(self) -> dict[str, str]:
        try:
            data = self.cache.get(self.key)
        except DamagedArtifact as error:
            return self._damaged(str(error))
        if data is None:
            return {}
        try:
            entries = json.loads(data)
        except (ValueError, RecursionError) as error:
            return self._damaged(f"it is not JSON: {error}")
        if type(entries) is not dict or not all(type(value) is str for value in entries.values()):
            return self._damaged("it is not a table of text")
        return entries

    def _damaged(self, reason: str) -> dict[str, str]:
        self._note(reason)
        self.cache.discard(self.key)
        return {}

    def _note(self, reason: str) -> None:
        text = f"results for ops on disk are computed again: {reason}"
        if text not in self._notes:
            self._notes.append(text)


_tables: dict[tuple[ArtifactCache, str], DiskTable] = {}
_lock = threading.Lock()
renew_in_child(sys.modules[__name__], "_lock")


def disk_table(key: str) -> DiskTable | None:
    """The table of that key; None if nothing is stored on disk."""
    cache = artifact_cache()
    if cache is None:
        return None
    with _lock:
        table = _tables.get((cache, key))
        if table is None:
            table = _tables[cache, key] = DiskTable(cache, key)
    return table


def save_tables() -> list[str]:
    """Write all tables with new entries. Returns a sentence for each problem."""
    with _lock:
        return [note for table in _tables.values() for note in table.save()]


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class OpTable:
    """A table of results for ops.

    Attributes:
        title: of the table.
        is_valid: whether something is a result: what a file has instead is computed again.
    """

    title: str
    is_valid: Callable[[Any], bool]

    def read(self, key: Hashable, bound: BoundSymbol) -> tuple[BoundSymbol, Any] | None:
        """The stored op, equal to ``bound`` except for names, and the value stored with it; None without an entry."""
        table = self._table()
        text = None if table is None else _text(key, bound)
        data = None if table is None or text is None else table.get(text)
        if table is None or text is None or data is None:
            return None
        try:
            args, kwargs, output, value = _Reader(io.BytesIO(data)).load()
            if type(args) is not tuple or type(kwargs) is not dict or not self.is_valid(value):
                raise pickle.UnpicklingError("it is not a result of the kind of this table")
        except LookupError:  # an operator of a package that is not imported here
            return None
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the result is computed again
            table.discard(text, f"{type(error).__name__}: {error}")
            return None
        return replace(bound, args=args, kwargs=kwargs, output=output), value

    def write(self, key: Hashable, bound: BoundSymbol, value: Any) -> None:
        """Store ``value``, which may contain ops on the values of ``bound``, if it can be pickled."""
        table = self._table()
        text = None if table is None else _text(key, bound)
        if table is None or text is None:
            return
        file = io.BytesIO()
        try:
            _Writer(file).dump((bound.args, bound.kwargs, bound.output, value))
        except pickle.PicklingError:  # it contains an object of this process only
            return
        table.put(text, file.getvalue())

    def _table(self) -> DiskTable | None:
        return disk_table(f"{self.title}\n{software()}")


def _text(key: Hashable, bound: BoundSymbol) -> str | None:
    """The key of an op as text, valid in all processes; None if part of it is valid in this process only.

    It includes the hardware, on which PyTorch's choice of kernels may depend.
    """
    decomposition = bound.symbol.decomposition
    known = decomposition is None or decomposition.__module__.split(".")[0] in ("torch", "thunder_core")
    text = key_text(key) if known else None
    if text is None:
        return None
    values = tensors_of(bound)
    devices = sorted({value.device for value in values}, key=str)
    return "\n".join([text, *map(hardware, devices)])


def is_op(value: Any) -> bool:
    """Whether what a file has is an op, with parts of the right types."""
    return (
        type(value) is BoundSymbol
        and type(value.symbol) is Symbol
        and type(value.args) is tuple
        and type(value.kwargs) is dict
        and type(value.effects) is Effects
        and (value.context is None or type(value.context) is Context)
        and type(value.parts) is tuple
        and all(map(is_op, value.parts))
    )


def is_form(value: Any) -> bool:
    """Whether what a file has is the trace of the ops that replace one, with parts of the right types."""
    return (
        type(value) is Trace
        and type(value.inputs) is tuple
        and all(type(proxy) in PROXY_TYPES for proxy in value.inputs)
        and type(value.symbols) is tuple
        and all(map(is_op, value.symbols))
        and type(value.context) is Context
    )


class _Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> str | None:
        """Pickle symbols by name, if the registry resolves the name to the symbol; functions as targets of symbols."""
        if isinstance(value, Symbol):
            return self._name(value)
        if not isinstance(value, FunctionType | BuiltinFunctionType) or _is_read(value):
            return None
        symbol = registry.symbol_of(value)
        if symbol.target is not value:
            raise pickle.PicklingError(f"{symbol.name} is another function")
        return f"{self._name(symbol)} target"

    def _name(self, symbol: Symbol) -> str:
        known = key_text((symbol,)) is not None and _is_named(symbol.name, symbol.style)
        if not known or registry.symbol_named(symbol.name, symbol.style) is not symbol:
            raise pickle.PicklingError(f"{symbol.name} may be another symbol elsewhere")
        return f"{symbol.style.name} {symbol.name}"


def _is_read(function: FunctionType | BuiltinFunctionType) -> bool:
    """Whether `_Reader.find_class` returns the function for the name by which pickle stores it."""
    module, name = function.__module__ or "", function.__qualname__
    admitted = isinstance(function, FunctionType) and module.startswith("torch") and is_admitted(f"{module}.{name}")
    return (module, name) in _CLASSES or admitted


def _is_named(name: str, style: CallStyle) -> bool:
    """Whether a table may name the symbol."""
    return is_admitted(name, style) or (style is CallStyle.FUNCTION and is_function_for_traces(name))


class _Reader(pickle.Unpickler):
    """Reads ops and their parts. Other classes and functions are refused: a file runs PyTorch's operators at most."""

    def persistent_load(self, name: str) -> Any:
        """The symbol with the pickled name, or its target. Raises LookupError if there is none that is admitted."""
        style, printed, *target = name.split(" ")
        if not _is_named(printed, CallStyle[style]):
            raise LookupError(f"there is no operator {printed}")
        symbol = registry.symbol_named(printed, CallStyle[style])
        return symbol.target if target else symbol

    def find_class(self, module: str, name: str) -> Any:
        """A class of `_CLASSES`, a constant of PyTorch such as a dtype, or an operator. Raises UnpicklingError."""
        known = _CLASSES.get((module, name))
        if known is not None:
            return known
        constant = vars(torch).get(name.removeprefix("torch.")) if module.startswith("torch") else None
        if isinstance(constant, _CONSTANTS):  # PyTorch gives them other modules, too
            return constant
        if module.startswith("torch") and is_admitted(f"{module}.{name}"):
            return static_value(f"{module}.{name}")
        raise pickle.UnpicklingError(f"{module}.{name} is not part of an op")


_CONSTANTS: Final = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
_LAYOUTS: Final = {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}
_PARTS: Final = (
    *(BoundSymbol, Context, Effects, NumberProxy, OpaqueProxy, SourceLocation, Stage, TensorProxy, Trace),
    *(complex, range, slice, torch.Size, torch.device),
)
_CLASSES: Final[dict[tuple[str, str], Any]] = {
    **{(kind.__module__, kind.__qualname__): kind for kind in _PARTS},
    ("builtins", "Ellipsis"): ...,
    ("torch.serialization", "_get_layout"): _LAYOUTS.__getitem__,  # by which PyTorch pickles layouts
}


def lowered_form(bound: BoundSymbol, ambient: Context) -> Trace:
    """`thunder_core.tracing.lowering.lowered_form`, or the form that another process stored.

    Raises LoweringError as that does.
    """
    return lowering.lowered_form(bound, ambient, _FORMS)


_FORMS: Final = OpTable("core-ATen forms 4", is_form)
