"""The registry: from a call that torch intercepted to a symbol and its canonical arguments."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.symbols import functions, opaque
from thunder_core.symbols.autocast import autocast_of
from thunder_core.symbols.binding import Binder, Call, Rule, adapt, keep
from thunder_core.symbols.inplace import functional_twin
from thunder_core.symbols.layout import parse_layout
from thunder_core.symbols.metadata import metadata_functions
from thunder_core.symbols.row import Row, Spelling

Key = tuple[str, CallStyle]
Function = Callable[..., Any]


class Registry:
    """Every symbol, one object for each name and style. Rows and opaque symbols are made when first asked for.

    Thread-safe: rules are added under a lock, and looking one up is a single dictionary access.
    """

    def __init__(self) -> None:
        self._rules: dict[Function, Rule] = {}
        self._symbols: dict[Key, Symbol] = {}
        self._rows: dict[Key, Row] = {}
        self._spellings: dict[Function, tuple[Row, Spelling, bool]] = {}
        self._metadata: frozenset[Function] | None = None
        self._lock = threading.RLock()
        self._loaded = False
        self.problems: list[str] = []

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
        symbol = self._symbols.get((name, style))
        if symbol is not None:
            return symbol
        with self._lock:
            self._load()
            row = self._rows.get((name, style))
            if row is not None:
                return self._row_symbol(row)
            return self._opaque(_function_named(name, style))

    def is_metadata(self, func: Function) -> bool:
        """Whether ``func`` only reads the types of its arguments, so that it is no part of a trace."""
        return func in (self._metadata or self._load_metadata())

    def rows(self) -> tuple[Row, ...]:
        """All rows."""
        with self._lock:
            self._load()
        return tuple(self._rows.values())

    def spellings(self) -> dict[Function, tuple[Row, Spelling, bool]]:
        """For each function in the tables its row, its spelling, and whether it is the in-place variant."""
        with self._lock:
            self._load()
        return dict(self._spellings)

    def symbol_of(self, row: Row) -> Symbol:
        """The symbol of a row."""
        return self.symbol_named(_printed_name(row.name, row.style), row.style)

    def _load_metadata(self) -> frozenset[Function]:
        self._metadata = metadata_functions()
        return self._metadata

    def _load(self) -> None:
        if self._loaded:
            return
        from thunder_core.symbols.tables import all_rows

        for row in all_rows():
            self._add_row(row)
        self._loaded = True

    def _add_row(self, row: Row) -> None:
        key = (_printed_name(row.name, row.style), row.style)
        printed = row.target if row.style is CallStyle.GETITEM else row.name
        if _function_or_none(printed) is None or _function_or_none(row.target) is None:
            self.problems.append(f"{row.name}: PyTorch has no {printed} or no {row.target}")
            return
        if key in self._rows:
            self.problems.append(f"{row.name}: two rows")
            return
        self._rows[key] = row
        for spelling in row.spellings:
            self._add_spelling(row, spelling, inplace=False)
        for spelling in row.inplace:
            self._add_spelling(row, spelling, inplace=True)

    def _add_spelling(self, row: Row, spelling: Spelling, *, inplace: bool) -> None:
        func = _function_or_none(spelling.name)
        if func is None:
            if not spelling.implied:
                self.problems.append(f"{row.name}: PyTorch has no {spelling.name}")
            return
        known = self._spellings.get(func)
        if known is None:
            self._spellings[func] = (row, spelling, inplace)
        elif known[0] is not row:
            self.problems.append(f"{row.name}: {spelling.name} belongs to {known[0].name}")

    def _add_rule(self, func: Function) -> Rule:
        with self._lock:
            self._load()
            if func in self._spellings:
                rule = self._row_rule(func, *self._spellings[func])
            else:
                rule, lasting = self._opaque_rule(func)
                if not lasting:
                    return rule
            self._rules[func] = rule
        return rule

    def _opaque_rule(self, func: Any) -> tuple[Rule, bool]:
        """The rule of a function without a row, and whether to remember it: local functions must not be kept alive."""
        symbol = self._opaque(func)
        if symbol.target in {functions.set_attribute, functions.delete_attribute} and func is not symbol.target:
            name = opaque.property_name(func)
            return lambda args, kwargs: (symbol, (args[0], name, *args[1:]), kwargs), True
        return keep(symbol), Tag.LOCAL not in symbol.tags

    def _row_rule(self, func: Function, row: Row, spelling: Spelling, inplace: bool) -> Rule:
        functional = self._row_symbol(row)
        symbol = self._inplace_symbol(row) if inplace else functional
        if symbol is None:
            return keep(self._opaque(func))
        fallback = keep(functional if spelling.name == row.name else self._opaque(func))
        if spelling.adapter is not None:
            return adapt(symbol, spelling.adapter, fallback)
        if not spelling.layouts:
            return keep(symbol)
        canonical = tuple(map(parse_layout, row.layouts))
        twin = None if inplace else self._inplace_symbol(row)
        return Binder(symbol, twin, canonical, tuple(map(parse_layout, spelling.layouts)), fallback).rule()

    def _row_symbol(self, row: Row) -> Symbol:
        name = _printed_name(row.name, row.style)
        symbol = self._symbols.get((name, row.style))
        if symbol is None:
            target = _function(row.target)
            symbol = Symbol(name, target, row.style, row.tags, None, row.decomposition, autocast_of(row.name))
            self._symbols[name, row.style] = symbol
        return symbol

    def _inplace_symbol(self, row: Row) -> Symbol | None:
        for spelling in row.inplace:
            target = _function_or_none(spelling.name)
            if target is not None:
                return self._inplace_symbol_named(row, spelling.name, target)
        return None

    def _inplace_symbol_named(self, row: Row, full_name: str, target: Function) -> Symbol:
        style = CallStyle.METHOD if full_name.startswith("torch.Tensor.") else CallStyle.FUNCTION
        name = _printed_name(full_name, style)
        symbol = self._symbols.get((name, style))
        if symbol is None:
            symbol = Symbol(name, target, style, row.tags, self._row_symbol(row))
            self._symbols[name, style] = symbol
            self._rows.setdefault((name, style), row)
        return symbol

    def _opaque(self, func: Function) -> Symbol:
        symbol = opaque.opaque_symbol(func)
        key = (symbol.name, symbol.style)
        if Tag.LOCAL in symbol.tags:
            return symbol
        if key in self._rows:
            return self._row_symbol(self._rows[key])
        known = self._symbols.get(key)
        if known is None:
            twin = functional_twin(func) if symbol.style is CallStyle.METHOD else None
            if twin is not None:
                symbol = Symbol(symbol.name, symbol.target, symbol.style, symbol.tags, self._opaque(twin))
            known = self._symbols[key] = symbol
        return known


def _printed_name(name: str, style: CallStyle) -> str:
    """Methods and attributes are printed by their bare name."""
    return name if style is CallStyle.FUNCTION else name.removeprefix("torch.Tensor.")


def _function_named(name: str, style: CallStyle) -> Function:
    """The function that a printed name stands for."""
    if style is CallStyle.GETITEM:
        return operator.getitem
    if style is CallStyle.FUNCTION:
        return _function(name)
    owner = getattr(torch.Tensor, name, None)
    if owner is None:
        raise LookupError(f"torch.Tensor has no {name}")
    return owner if style is CallStyle.METHOD else _getter(owner)


def _function(name: str) -> Function:
    function = _function_or_none(name)
    if function is None:
        raise LookupError(f"there is no function {name}")
    return function


def _function_or_none(name: str) -> Function | None:
    """What a dotted name stands for; for properties of Tensor their getter."""
    try:
        value = opaque.evaluate(name)
    except LookupError:
        return None
    return value if callable(value) else _getter(value)


def _getter(descriptor: Any) -> Function:
    getter: Function = descriptor.__get__
    return getter


registry: Final = Registry()
"""The registry that everything uses."""
