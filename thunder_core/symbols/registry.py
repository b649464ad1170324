"""The registry: maps an intercepted call of a torch function to a symbol and canonical arguments."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.forking import renew_in_child
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.pytorch_internals import schema_of
from thunder_core.symbols import functions, opaque
from thunder_core.symbols.binding import Binder, Call, Rule, adapter_rule, parse_layout, unchanged_rule
from thunder_core.symbols.metadata import metadata_functions
from thunder_core.symbols.naming import (
    Function,
    evaluate,
    existing_function,
    function_printed_as,
    original_function,
    printed_name,
)
from thunder_core.symbols.row import Row, Spelling
from thunder_core.symbols.tables import all_rows

Key = tuple[str, CallStyle]


@dataclass(frozen=True, slots=True)
class RowSpelling:
    """The row and the spelling of a function in the tables.

    Attributes:
        inplace: whether the function is the in-place variant of the row.
    """

    row: Row
    spelling: Spelling
    inplace: bool


class Catalogue:
    """An index of rows.

    Attributes:
        rows: the rows, by printed name and style.
        spellings: the rows and spellings, by function.
        problems: contradictions between rows, and functions that this version of PyTorch lacks. The affected rows and
            spellings are not in the catalogue, so that calls of them are opaque.
    """

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self.rows: dict[Key, Row] = {}
        self.spellings: dict[Function, RowSpelling] = {}
        self.problems: list[str] = []
        self._functions: dict[str, Function | None] = {}
        for row in rows:
            self._add_row(row)

    def function(self, name: str) -> Function | None:
        """The function of a row by its dotted name, as it was when the row was added; None if there is none."""
        if name not in self._functions:
            self._functions[name] = original_function(name)
        return self._functions[name]

    def extend(self, rows: Iterable[Row]) -> Catalogue:
        """Add rows and return a catalogue of the new ones. Row objects that it contains already are skipped.

        Raises:
            ValueError: a function of a row does not exist, or has a row already. No row is added then.
        """
        present = {id(row) for row in self.rows.values()}
        new = [row for row in rows if id(row) not in present]
        added = Catalogue(tuple(new))
        problems = added.problems + [
            f"{known.row.name}: {known.spelling.name} belongs to the row of {self.spellings[function].row.name}"
            for function, known in added.spellings.items()
            if function in self.spellings
        ]
        if problems:
            raise ValueError("these rows contradict others: " + "; ".join(problems))
        self.rows.update(added.rows)
        self.spellings.update(added.spellings)
        return added

    def _add_row(self, row: Row) -> None:
        key = (printed_name(row.name, row.style), row.style)
        printed = row.target if row.style is CallStyle.GETITEM else row.name
        missing = [name for name in dict.fromkeys((printed, row.target)) if self.function(name) is None]
        if missing:
            self.problems.append(f"{row.name}: PyTorch has no {' and no '.join(missing)}")
            return
        if key in self.rows:
            self.problems.append(f"{row.name}: two rows")
            return
        self.rows[key] = row
        for spelling in row.spellings:
            self._add_spelling(RowSpelling(row, spelling, inplace=False))
        for spelling in row.inplace:
            self._add_spelling(RowSpelling(row, spelling, inplace=True))

    def _add_spelling(self, added: RowSpelling) -> None:
        row, spelling = added.row, added.spelling
        func = self.function(spelling.name)
        if func is None:
            if not spelling.implied:
                self.problems.append(f"{row.name}: PyTorch has no {spelling.name}")
            return
        first = self.spellings.setdefault(func, added)
        if first.row is not row:
            self.problems.append(f"{row.name}: {spelling.name} belongs to {first.row.name}")


def _import_modules(rows: Iterable[Row]) -> None:
    """Import the modules of the functions of rows.

    Raises:
        ValueError: a function does not exist.
    """
    for name in (name for row in rows for name in (row.name, row.target)):
        try:
            evaluate(name)
        except LookupError as error:
            raise ValueError(f"the row of {name} is about a function that does not exist: {error}") from error


def _load_catalogue() -> Catalogue:
    """The catalogue of the tables in this package."""
    return Catalogue(tuple(all_rows()))


# The schemas of these pairs are equivalent, but their names or the text of their schemas differ.
_FUNCTIONAL_TWINS: Final = {
    "normal_": "torch.ops.aten.normal_functional",
    "copy_": "torch.ops.aten.copy",
    "polygamma_": "torch.Tensor.polygamma",
    "__ilshift__": "torch.Tensor.__lshift__",
    "__irshift__": "torch.Tensor.__rshift__",
}
# These replace or resize the storage of a tensor object, which no functional op can express.
_WITHOUT_TWIN: Final = frozenset({"resize_", "resize_as_", "resize_as_sparse_", "set_", "sparse_resize_"})


def _functional_twin(method: Function) -> Function | None:
    """The functional counterpart of the method ``Tensor.foo_``; None if there is none with the same arguments.

    This is ``Tensor.foo`` or, if that does not exist, the ATen operator ``foo``.
    """
    name = getattr(method, "__name__", "")
    if name in _FUNCTIONAL_TWINS:
        return existing_function(_FUNCTIONAL_TWINS[name])
    base = name[:-1]
    if name in _WITHOUT_TWIN or not name.endswith("_") or name.endswith("__") or not _schemas_agree(name, base):
        return None
    return existing_function(f"torch.Tensor.{base}") or existing_function(f"torch.ops.aten.{base}")


def _schemas_agree(inplace: str, functional: str) -> bool:
    """Whether each overload of an in-place operator has a functional one with the same arguments."""
    required, available = _signatures(inplace), _signatures(functional)
    return bool(required) and all(available.get(overload) == arguments for overload, arguments in required.items())


def _signatures(name: str) -> dict[str, list[tuple[str, str]]]:
    """Names and types of the arguments, for each overload of an ATen operator whose first argument is a tensor."""
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
    """All symbols but local ones, one object for each name and style, created on first use.

    Thread-safe: rules are added under a lock; a lookup is a single dictionary access.
    """

    def __init__(self) -> None:
        self._rules: dict[Function, Rule] = {}
        self._symbols: dict[Key, Symbol] = {}
        self._catalogue: Catalogue | None = None
        self._metadata: frozenset[Function] | None = None
        self._lock = threading.RLock()
        renew_in_child(self, "_lock")

    def resolve(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Call:
        """The symbol and the canonical arguments of a call.

        Args:
            func, args, kwargs: as PyTorch passes them to ``__torch_function__``.

        Returns:
            A symbol, and arguments such that ``symbol.target(*args, **kwargs)`` is equivalent to the call. Equal calls
            have equal arguments: positional if possible, without trailing defaults, with sizes as tuples.
        """
        rule = self._rules.get(func)
        if rule is None:
            rule = self._add_rule(func)
        return rule(args, {} if kwargs is None else kwargs)

    def symbol_named(self, name: str, style: CallStyle = CallStyle.FUNCTION) -> Symbol:
        """The symbol that is printed as ``name``. Raises LookupError if there is no such function."""
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
        """The symbol of calls of ``func``: that of its row, or an opaque one."""
        with self._lock:
            known = self.catalogue.spellings.get(func)
            if known is None:
                return self._opaque(func)
            inplace = self._inplace_symbol(known.row) if known.inplace else None
            return self._row_symbol(known.row) if inplace is None else inplace

    def row_of(self, symbol: Symbol) -> Row | None:
        """The row of a symbol or of its functional form; None for opaque symbols."""
        row = self.catalogue.rows.get((symbol.name, symbol.style))
        if row is None and Tag.LOCAL not in symbol.tags:
            known = self.catalogue.spellings.get(symbol.target)
            row = None if known is None else known.row
        return row

    def inplace_twin(self, symbol: Symbol) -> Symbol | None:
        """The symbol that writes the result of ``symbol`` into its first argument, if the tables have one."""
        with self._lock:
            row = self.catalogue.rows.get((symbol.name, symbol.style))
            return None if row is None or self._row_symbol(row) is not symbol else self._inplace_symbol(row)

    def is_metadata(self, func: Function) -> bool:
        """Whether ``func`` is a metadata query, which is not recorded in traces."""
        return func in (self._metadata or self._load_metadata())

    def extend(self, rows: Iterable[Row]) -> None:
        """Add rows for functions that have no row yet. Row objects that were added before are skipped.

        Calls that are recorded afterwards are resolved by them. Existing traces and claims of executors retain the
        previous symbols, so rows must be added before executors claim symbols of their functions.

        Raises:
            ValueError: a function of a row does not exist, or has a row already. No row is added then.
        """
        rows = tuple(rows)
        _import_modules(rows)  # not under the lock: a module may extend the tables, in this thread or in another
        with self._lock:
            added = self.catalogue.extend(rows)
            for func in added.spellings:
                self._rules.pop(func, None)
            for key, symbol in tuple(self._symbols.items()):
                if key in added.rows or symbol.target in added.spellings:
                    del self._symbols[key]

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of the tables, loaded on first use."""
        with self._lock:
            if self._catalogue is None:
                self._catalogue = _load_catalogue()
            return self._catalogue

    def _load_metadata(self) -> frozenset[Function]:
        self._metadata = metadata_functions()
        return self._metadata

    def _add_rule(self, func: Function) -> Rule:
        with self._lock:
            known = self.catalogue.spellings.get(func)
            rule, cacheable = self._opaque_rule(func) if known is None else (self._spelling_rule(func, known), True)
            if cacheable:
                self._rules[func] = rule
        return rule

    def _opaque_rule(self, func: Any) -> tuple[Rule, bool]:
        """The rule of a function without a row, and whether to cache it, which extends the lifetime of the function."""
        symbol = self._opaque(func)
        if symbol.target is functions.set_grad and getattr(func, "__name__", "") == "__delete__":
            return lambda args, kwargs: (symbol, (*args, None), kwargs), True
        if symbol.target in opaque.ASSIGNS and func is not symbol.target:
            name = opaque.property_name(func)
            return lambda args, kwargs: (symbol, (args[0], name, *args[1:]), kwargs), True
        return unchanged_rule(symbol), Tag.LOCAL not in symbol.tags

    def _spelling_rule(self, func: Function, known: RowSpelling) -> Rule:
        """The rule of a function with a row."""
        row, spelling = known.row, known.spelling
        functional, inplace = self._row_symbol(row), self._inplace_symbol(row)
        symbol = inplace if known.inplace and inplace is not None else functional
        fallback = unchanged_rule(functional if functional.target == func else self._unfitting(func))
        if spelling.adapter is not None:
            return adapter_rule(symbol, spelling.adapter, fallback)
        if not spelling.layouts:
            return unchanged_rule(symbol)
        canonical, layouts = tuple(map(parse_layout, row.layouts)), tuple(map(parse_layout, spelling.layouts))
        return Binder(symbol, None if known.inplace else inplace, canonical, layouts, fallback).rule()

    def _unfitting(self, func: Function) -> Symbol:
        """The symbol that calls ``func`` itself, for arguments that do not fit its row."""
        symbol = self._opaque(func)
        if symbol.target == func:
            return symbol
        # The symbol of the row has this name and calls another function, which does not accept these arguments.
        return Symbol(symbol.name, func, symbol.style, symbol.tags | opaque.OPAQUE)

    def _row_symbol(self, row: Row) -> Symbol:
        key = (printed_name(row.name, row.style), row.style)
        symbol = self._symbols.get(key)
        if symbol is None:
            target = self.catalogue.function(row.target)
            assert target is not None, f"{row.name} has no target, and the catalogue excludes such rows"
            functional = self._functional(target, row.style)
            symbol = Symbol(key[0], target, row.style, row.tags, functional, row.decomposition)
            self._symbols[key] = symbol
        return symbol

    def _inplace_symbol(self, row: Row) -> Symbol | None:
        """The symbol of the row's in-place variant: the first of its spellings that exists."""
        for spelling in row.inplace:
            target = self.catalogue.function(spelling.name)
            if target is not None:
                style = CallStyle.METHOD if spelling.name.startswith("torch.Tensor.") else CallStyle.FUNCTION
                key = (printed_name(spelling.name, style), style)
                if key not in self._symbols:
                    # a detached result is a new tensor, but in place the argument loses its autograd history
                    tags = row.tags | {Tag.CHANGES_AUTOGRAD} if Tag.DETACH in row.tags else row.tags
                    self._symbols[key] = Symbol(key[0], target, style, tags, self._row_symbol(row))
                return self._symbols[key]
        return None

    def _opaque(self, func: Function) -> Symbol:
        """The opaque symbol of ``func``, or the symbol of the row that has its printed name."""
        known = self.catalogue.spellings.get(func)
        inplace = self._inplace_symbol(known.row) if known is not None and known.inplace else None
        if inplace is not None and inplace.target == func:
            return inplace
        symbol = opaque.opaque_symbol(func)
        if Tag.LOCAL in symbol.tags:
            return symbol
        key = (symbol.name, symbol.style)
        existing = self._symbols.get(key)
        if existing is not None:
            if existing.target == func or not _may_be_redefined(existing):
                return existing
            self._rules.pop(existing.target, None)  # the name now refers to ``func``
            self._symbols[key] = symbol
            return symbol
        if key in self.catalogue.rows:
            return self._row_symbol(self.catalogue.rows[key])
        functional = self._functional(func, symbol.style)
        if functional is not None:
            symbol = Symbol(symbol.name, symbol.target, symbol.style, symbol.tags, functional)
        return self._symbols.setdefault(key, symbol)

    def _functional(self, func: Function, style: CallStyle) -> Symbol | None:
        """The symbol of the functional counterpart of an in-place method without a row; None if there is none."""
        twin = _functional_twin(func) if style is CallStyle.METHOD else None
        return None if twin is None else self._opaque(twin)


def _may_be_redefined(symbol: Symbol) -> bool:
    """Whether the symbol's name may refer to another function later, as names of operators and of variables may."""
    return Tag.OPAQUE in symbol.tags and symbol.style is CallStyle.FUNCTION


registry: Final = Registry()
"""The global registry."""
