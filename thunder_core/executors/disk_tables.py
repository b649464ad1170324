"""Results for lines in tables on disk, which processes share: decisions of executors, core-ATen forms, derivatives.

What a line is in core ATen, and whether an executor takes an operator, is computed by PyTorch on fake tensors,
or with libraries that take long to import. Such results are the same in every process. A table of them is read when it
is first used, and written when a program was compiled, together with what other processes wrote meanwhile.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import threading
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from thunder_core.executors.artifacts import ArtifactCache, DamagedArtifact, artifact_cache, hardware, software
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.keys import key_text
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol
from thunder_core.ir.trace import Trace
from thunder_core.symbols.registry import registry
from thunder_core.tracing import lowering

_MOST: Final = 4096
"""Entries of a table; those that were not read are dropped first."""


@dataclass(slots=True, eq=False)
class DiskTable:
    """Entries by keys; the caller chooses the form of both.

    Attributes:
        cache: the folder.
        key: what all entries depend on besides their keys; another one is another table.
    """

    cache: ArtifactCache
    key: str
    _known: dict[bytes, bytes] = field(default_factory=dict)
    _asked: dict[bytes, bytes] = field(default_factory=dict)
    _new: bool = False
    _notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known = self._read()

    def get(self, question: str) -> bytes | None:
        """The entry; None if there is none."""
        short = _short(question)
        answer = self._known.get(short)
        if answer is not None:
            self._asked[short] = answer
        return answer

    def put(self, question: str, answer: bytes) -> None:
        """Add an entry, from the next `save_tables` on for other processes."""
        short = _short(question)
        self._known[short] = self._asked[short] = answer
        self._new = True

    def save(self) -> list[str]:
        """Write it, if there is something new in it. Returns what went wrong."""
        if self._new:
            together = {key: answer for key, answer in self._read().items() if key not in self._asked}
            together.update(self._asked)
            reason = self.cache.put(self.key, pickle.dumps(dict([*together.items()][-_MOST:])))
            self._new = reason is not None
            if reason is not None:
                self._notes.append(f"answers about lines are not kept on disk, because {reason}")
        notes, self._notes = self._notes, []
        return notes

    def _read(self) -> dict[bytes, bytes]:
        if self.cache.unsuitable() is not None:  # reported where regions are read, and where this is written
            return {}
        try:
            data = self.cache.get(self.key)
            found = {} if data is None else pickle.loads(data)
            if not isinstance(found, dict):
                raise DamagedArtifact(f"it holds {type(found).__name__}")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it can be made again
            self._notes.append(f"answers about lines on disk were made again: {error}")
            self.cache.discard(self.key)
            return {}
        return found


_tables: dict[tuple[ArtifactCache, str], DiskTable] = {}
_lock = threading.Lock()


def disk_table(key: str) -> DiskTable | None:
    """The table of that key; None where nothing is stored on disk."""
    cache = artifact_cache()
    if cache is None:
        return None
    with _lock:
        table = _tables.get((cache, key))
        if table is None:
            table = _tables[cache, key] = DiskTable(cache, key)
    return table


def save_tables() -> list[str]:
    """Write all that have something new. Returns what went wrong."""
    with _lock:
        return [note for table in _tables.values() for note in table.save()]


def _short(question: str) -> bytes:
    return hashlib.sha256(question.encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class LineTable:
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

    def _table(self) -> DiskTable | None:
        return disk_table(f"{self.title}\n{software()}")


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


def lowered_form(bound: BoundSymbol, ambient: Context) -> Trace:
    """`thunder_core.tracing.lowering.lowered_form`, or the form that another process stored.

    Raises LoweringError as that does.
    """
    return lowering.lowered_form(bound, ambient, _KEPT)


class _LoweredForms:
    """By the key of the line, where all of it means the same in every process."""

    lines: Final = LineTable("core-ATen forms 2")

    def read(self, key: Any, bound: BoundSymbol) -> Trace | None:
        found = self.lines.read(key, bound)
        return None if found is None else found[1]

    def write(self, key: Any, bound: BoundSymbol, form: Trace) -> None:
        self.lines.write(key, bound, form)


_KEPT: Final = _LoweredForms()
