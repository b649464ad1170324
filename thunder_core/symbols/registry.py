"""The registry: from a call that torch intercepted to a symbol and its canonical arguments."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.pytorch_internals import schema_of
from thunder_core.symbols import functions, opaque
from thunder_core.symbols.autocast import autocast_of
from thunder_core.symbols.binding import Binder, Call, Rule, adapt, keep, parse_layout
from thunder_core.symbols.metadata import metadata_functions
from thunder_core.symbols.naming import Function, evaluate, existing_function, function_printed_as, printed_name
from thunder_core.symbols.row import Row, Spelling
from thunder_core.symbols.tables import all_rows

Key = tuple[str, CallStyle]


@dataclass(frozen=True, slots=True)
class Entry:
    """What a function in the tables stands for: a row, or its in-place variant, under one of its spellings."""

    row: Row
    spelling: Spelling
    inplace: bool


class Catalogue:
    """An index of rows.

    Attributes:
        rows: by printed name and style.
        entries: by function.
        problems: what in the tables does not fit this version of PyTorch or contradicts itself; such rows and spellings
            are left out, and calls of them are opaque.
    """

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self.rows: dict[Key, Row] = {}
        self.entries: dict[Function, Entry] = {}
        self.problems: list[str] = []
        for row in rows:
            self._add_row(row)

    def extend(self, rows: Iterable[Row]) -> Catalogue:
        """Add rows and return those that are new. Rows that are there already, the same objects, stay as they are.

        Raises:
            ValueError: a row is about a function that has one, or about none. Nothing is added then.
        """
        present = {id(row) for row in self.rows.values()}
        new = [row for row in rows if id(row) not in present]
        added = Catalogue(tuple(new))
        problems = added.problems + [
            f"{entry.row.name}: {entry.spelling.name} belongs to the row of {self.entries[function].row.name}"
            for function, entry in added.entries.items()
            if function in self.entries
        ]
        if problems:
            raise ValueError("these rows contradict others: " + "; ".join(problems))
        self.rows.update(added.rows)
        self.entries.update(added.entries)
        return added

    def _add_row(self, row: Row) -> None:
        key = (printed_name(row.name, row.style), row.style)
        printed = row.target if row.style is CallStyle.GETITEM else row.name
        missing = [name for name in dict.fromkeys((printed, row.target)) if existing_function(name) is None]
        if missing or key in self.rows:
            self.problems.append(
                f"{row.name}: " + (f"PyTorch has no {' and no '.join(missing)}" if missing else "two rows")
            )
            return
        self.rows[key] = row
        for spelling in row.spellings:
            self._add_spelling(Entry(row, spelling, inplace=False))
        for spelling in row.inplace:
            self._add_spelling(Entry(row, spelling, inplace=True))

    def _add_spelling(self, entry: Entry) -> None:
        row, spelling = entry.row, entry.spelling
        func = existing_function(spelling.name)
        if func is None:
            if not spelling.implied:
                self.problems.append(f"{row.name}: PyTorch has no {spelling.name}")
            return
        known = self.entries.setdefault(func, entry)
        if known.row is not row:
            self.problems.append(f"{row.name}: {spelling.name} belongs to {known.row.name}")


def import_modules(rows: Iterable[Row]) -> None:
    """Import the modules of the functions that rows are about.

    Raises:
        ValueError: a row is about a function that does not exist.
    """
    for name in (name for row in rows for name in (row.name, row.target)):
        try:
            evaluate(name)
        except LookupError as error:
            raise ValueError(f"the row of {name} is about a function that does not exist: {error}") from error


def load_catalogue() -> Catalogue:
    """The catalogue of the tables in this package."""
    return Catalogue(tuple(all_rows()))


# Twins whose names or schemas differ in form only.
_GIVEN: Final = {
    "normal_": "torch.ops.aten.normal_functional",
    "copy_": "torch.ops.aten.copy",
    "polygamma_": "torch.Tensor.polygamma",
    "__ilshift__": "torch.Tensor.__lshift__",
    "__irshift__": "torch.Tensor.__rshift__",
}
# These change the memory of a tensor itself, which no value expresses.
_WITHOUT_TWIN: Final = frozenset({"resize_", "resize_as_", "resize_as_sparse_", "set_", "sparse_resize_"})


def functional_twin(method: Function) -> Function | None:
    """For the method ``Tensor.foo_`` the function that computes its result from the same arguments; None if unknown.

    That is ``Tensor.foo``, or the functional variant among the ATen operators, where its schemas agree.
    """
    name = getattr(method, "__name__", "")
    if name in _GIVEN:
        return existing_function(_GIVEN[name])
    base = name[:-1]
    if name in _WITHOUT_TWIN or not name.endswith("_") or name.endswith("__") or not _schemas_agree(name, base):
        return None
    return existing_function(f"torch.Tensor.{base}") or existing_function(f"torch.ops.aten.{base}")


def _schemas_agree(inplace: str, functional: str) -> bool:
    """Whether each overload of an in-place operator has a functional one with the same arguments."""
    wanted, offered = _signatures(inplace), _signatures(functional)
    return bool(wanted) and wanted.keys() <= offered.keys() and all(offered[key] == wanted[key] for key in wanted)


def _signatures(name: str) -> dict[str, list[tuple[str, str]]]:
    """Names and types of the arguments, for each overload of an ATen operator that takes a tensor first."""
    if not hasattr(torch.ops.aten, name):
        return {}
    packet = getattr(torch.ops.aten, name)
    signatures = {}
    for overload in packet.overloads():
        arguments = schema_of(getattr(packet, overload)).arguments
        if arguments and str(arguments[0].type) == "Tensor" and not any(item.is_out for item in arguments):
            signatures[overload] = [(item.name, str(item.type)) for item in arguments]
    return signatures


class Registry:
    """Every symbol, one object for each name and style. Rows and opaque symbols are created on first use.

    Thread-safe: rules are added under a lock, and looking one up is a single dictionary access.
    """

    def __init__(self) -> None:
        self._rules: dict[Function, Rule] = {}
        self._symbols: dict[Key, Symbol] = {}
        self._catalogue: Catalogue | None = None
        self._metadata: frozenset[Function] | None = None
        self._lock = threading.RLock()

    def resolve(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Call:
        """The symbol that a call means and its canonical arguments.

        Args:
            func, args, kwargs: as torch hands them to ``__torch_function__``.

        Returns:
            A symbol, and arguments such that ``symbol.target(*args, **kwargs)`` does what the call does. Equal calls
            get equal arguments: those with a place are positional, defaults at the end are left out, sizes are tuples.
        """
        rule = self._rules.get(func)
        if rule is None:
            rule = self._add_rule(func)
        return rule(args, {} if kwargs is None else kwargs)

    def symbol_named(self, name: str, style: CallStyle = CallStyle.FUNCTION) -> Symbol:
        """The symbol that is printed as ``name``. Raises LookupError when there is no such function."""
        key = (name, style)
        symbol = self._symbols.get(key)
        if symbol is not None and not _may_be_redefined(symbol):
            return symbol
        with self._lock:
            row = self.catalogue.rows.get(key)
            if row is not None:
                return self._row_symbol(row)
        function = function_printed_as(name, style)  # not under the lock: this may import a package, which may add rows
        with self._lock:
            row = self.catalogue.rows.get(key)
            return self._opaque(function) if row is None else self._row_symbol(row)

    def symbol_of(self, func: Function) -> Symbol:
        """The symbol that calls of ``func`` become: that of its row, or an opaque one."""
        with self._lock:
            entry = self.catalogue.entries.get(func)
            if entry is None:
                return self._opaque(func)
            inplace = self._inplace_symbol(entry.row) if entry.inplace else None
            return self._row_symbol(entry.row) if inplace is None else inplace

    def row_of(self, symbol: Symbol) -> Row | None:
        """The row that a symbol, or its functional form, comes from; None for opaque ones."""
        row = self.catalogue.rows.get((symbol.name, symbol.style))
        if row is None and Tag.LOCAL not in symbol.tags:
            entry = self.catalogue.entries.get(symbol.target)
            row = None if entry is None else entry.row
        return row

    def inplace_twin(self, symbol: Symbol) -> Symbol | None:
        """The symbol that writes the result of ``symbol`` into its first argument, if the tables have one."""
        with self._lock:
            row = self.catalogue.rows.get((symbol.name, symbol.style))
            return None if row is None or self._row_symbol(row) is not symbol else self._inplace_symbol(row)

    def is_metadata(self, func: Function) -> bool:
        """Whether ``func`` only reads the types of its arguments, so that it is no part of a trace."""
        return func in (self._metadata or self._load_metadata())

    def extend(self, rows: Iterable[Row]) -> None:
        """Add rows to the tables: what there is to know about functions that have no row yet.

        Calls that are recorded from now on follow them. Symbols that exist already stay as they are, so this
        comes before executors claim them. Adding the same row objects again changes nothing.

        Raises:
            ValueError: a row is about a function that has one, or about none. Nothing is added then.
        """
        rows = tuple(rows)
        import_modules(rows)  # they may extend the tables, in this thread or another, which waits for the lock
        with self._lock:
            added = self.catalogue.extend(rows)
            for func in added.entries:
                self._rules.pop(func, None)
            for key, symbol in tuple(self._symbols.items()):
                if key in added.rows or symbol.target in added.entries:
                    del self._symbols[key]

    @property
    def catalogue(self) -> Catalogue:
        """The tables; read when first needed."""
        with self._lock:
            if self._catalogue is None:
                self._catalogue = load_catalogue()
            return self._catalogue

    def _load_metadata(self) -> frozenset[Function]:
        self._metadata = metadata_functions()
        return self._metadata

    def _add_rule(self, func: Function) -> Rule:
        with self._lock:
            entry = self.catalogue.entries.get(func)
            rule, lasting = self._opaque_rule(func) if entry is None else (self._entry_rule(func, entry), True)
            if lasting:
                self._rules[func] = rule
        return rule

    def _opaque_rule(self, func: Any) -> tuple[Rule, bool]:
        """The rule of a function without a row, and whether to cache it: local functions must not be kept alive."""
        symbol = self._opaque(func)
        if symbol.target is functions.set_grad and getattr(func, "__name__", "") == "__delete__":
            return lambda args, kwargs: (symbol, (*args, None), kwargs), True
        if symbol.target in opaque.ASSIGNS and func is not symbol.target:
            name = opaque.property_name(func)
            return lambda args, kwargs: (symbol, (args[0], name, *args[1:]), kwargs), True
        return keep(symbol), Tag.LOCAL not in symbol.tags

    def _entry_rule(self, func: Function, entry: Entry) -> Rule:
        row, spelling = entry.row, entry.spelling
        functional, inplace = self._row_symbol(row), self._inplace_symbol(row)
        symbol = inplace if entry.inplace and inplace is not None else functional
        fallback = keep(functional if functional.target == func else self._unfitting(func))
        if spelling.adapter is not None:
            return adapt(symbol, spelling.adapter, fallback)
        if not spelling.layouts:
            return keep(symbol)
        canonical, layouts = tuple(map(parse_layout, row.layouts)), tuple(map(parse_layout, spelling.layouts))
        return Binder(symbol, None if entry.inplace else inplace, canonical, layouts, fallback).rule()

    def _unfitting(self, func: Function) -> Symbol:
        """What a function in the tables means with arguments that its row has no place for: itself."""
        symbol = self._opaque(func)
        if symbol.target == func:
            return symbol
        # The row prints this very name and calls another function, which does not take these arguments.
        return Symbol(symbol.name, func, symbol.style, symbol.tags | opaque.OPAQUE)

    def _row_symbol(self, row: Row) -> Symbol:
        key = (printed_name(row.name, row.style), row.style)
        symbol = self._symbols.get(key)
        if symbol is None:
            target = existing_function(row.target)
            assert target is not None, f"the catalogue left out rows without a target, but not {row.name}"
            functional = self._functional(target, row.style)
            symbol = Symbol(key[0], target, row.style, row.tags, functional, row.decomposition, autocast_of(row.name))
            self._symbols[key] = symbol
        return symbol

    def _inplace_symbol(self, row: Row) -> Symbol | None:
        """The symbol of the row's in-place variant: the first of its spellings that exists."""
        for spelling in row.inplace:
            target = existing_function(spelling.name)
            if target is not None:
                style = CallStyle.METHOD if spelling.name.startswith("torch.Tensor.") else CallStyle.FUNCTION
                key = (printed_name(spelling.name, style), style)
                if key not in self._symbols:
                    self._symbols[key] = Symbol(key[0], target, style, row.tags, self._row_symbol(row))
                return self._symbols[key]
        return None

    def _opaque(self, func: Function) -> Symbol:
        """The opaque symbol of ``func``, or what its printed name stands for if that is in the tables."""
        entry = self.catalogue.entries.get(func)
        inplace = self._inplace_symbol(entry.row) if entry is not None and entry.inplace else None
        if inplace is not None and inplace.target == func:
            return inplace
        symbol = opaque.opaque_symbol(func)
        if Tag.LOCAL in symbol.tags:
            return symbol
        key = (symbol.name, symbol.style)
        known = self._symbols.get(key)
        if known is not None:
            if known.target == func or not _may_be_redefined(known):
                return known
            self._rules.pop(known.target, None)  # the name has another function now, and the old one need not exist
            self._symbols[key] = symbol
            return symbol
        if key in self.catalogue.rows:
            return self._row_symbol(self.catalogue.rows[key])
        functional = self._functional(func, symbol.style)
        if functional is not None:
            symbol = Symbol(symbol.name, symbol.target, symbol.style, symbol.tags, functional)
        return self._symbols.setdefault(key, symbol)

    def _functional(self, func: Function, style: CallStyle) -> Symbol | None:
        """For an in-place method outside the tables, the symbol that computes its value out of place."""
        twin = functional_twin(func) if style is CallStyle.METHOD else None
        return None if twin is None else self._opaque(twin)


def _may_be_redefined(symbol: Symbol) -> bool:
    """Whether the symbol's name may come to mean another function: that of an operator, or of a module's variable."""
    return Tag.OPAQUE in symbol.tags and symbol.style is CallStyle.FUNCTION


registry: Final = Registry()
"""The registry that everything uses."""
