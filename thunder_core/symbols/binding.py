"""Rules: how the arguments of one spelling become the canonical arguments of its symbol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from thunder_core.ir.symbol import Symbol
from thunder_core.symbols.layout import REQUIRED, Layout, same_value
from thunder_core.symbols.row import Adapter

Call = tuple[Symbol, tuple[Any, ...], dict[str, Any]]
Rule = Callable[[tuple[Any, ...], dict[str, Any]], Call]

_IGNORED: Final = frozenset({"_stacklevel"})
_SEQUENCES: Final = frozenset({list, torch.Size})


def keep(symbol: Symbol) -> Rule:
    """The rule that takes arguments as they come."""
    return lambda args, kwargs: (symbol, args, kwargs)


def adapt(symbol: Symbol, adapter: Adapter, fallback: Rule) -> Rule:
    """The rule of a spelling with an adapter."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        adapted = adapter(args, kwargs)
        return fallback(args, kwargs) if adapted is None else (symbol, *adapted)

    return rule


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds calls of one spelling.

    Attributes:
        symbol: what the spelling means.
        inplace: what it means with ``inplace=True``.
        canonical: layouts of the symbol.
        layouts: layouts of the spelling.
        fallback: for arguments that fit none of them.
    """

    symbol: Symbol
    inplace: Symbol | None
    canonical: tuple[Layout, ...]
    layouts: tuple[Layout, ...]
    fallback: Rule

    def rule(self) -> Rule:
        """The rule of this spelling, with a short way for the most frequent form of call."""
        if self._collects():
            return self._collecting_rule()
        direct = self._direct_counts()
        symbol, general = self.symbol, self.bind

        def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
            if kwargs or len(args) not in direct:
                return general(args, kwargs)
            for item in args:
                if type(item) in _SEQUENCES:
                    return general(args, kwargs)
            last, default = args[-1], direct[len(args)]
            if last is default or (type(last) is type(default) and last == default):
                return general(args, kwargs)
            return symbol, args, kwargs

        return rule

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Match the arguments with the layouts, one after the other."""
        for layout in self.layouts:
            values = layout.collect(args, kwargs)
            if values is None:
                continue
            symbol = self.symbol
            if self.inplace is not None and values.get("inplace"):
                symbol = self.inplace
                del values["inplace"]
            for canonical in self.canonical:
                placed = _place(values, layout, canonical)
                if placed is not None:
                    return symbol, *placed
        return self.fallback(args, kwargs)

    def _collects(self) -> bool:
        """Whether the only layout is ``input, *sizes``, with the same two places canonically."""
        if len(self.layouts) > 1 or len(self.canonical) > 1:
            return False
        layout, canonical = self.layouts[0], self.canonical[0]
        same = layout.positional == canonical.positional and len(layout.positional) == 2
        return layout.variadic and same and not _differing_defaults(layout, canonical)

    def _collecting_rule(self) -> Rule:
        symbol, general = self.symbol, self.bind

        def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
            if not kwargs and len(args) > 1:
                if type(args[1]) is int or len(args) > 2:
                    return symbol, (args[0], args[1:]), kwargs
                if type(args[1]) is tuple:
                    return symbol, args, kwargs
            return general(args, kwargs)

        return rule

    def _direct_counts(self) -> dict[int, Any]:
        """Numbers of positional arguments that may stay where they are, each with the default of the last of them."""
        direct: dict[int, Any] = {}
        for layout in self.layouts:
            for canonical in self.canonical:
                if layout.variadic or canonical.variadic or _differing_defaults(layout, canonical):
                    continue
                for count in range(1, min(len(layout.positional), len(canonical.positional)) + 1):
                    same = layout.positional[:count] == canonical.positional[:count]
                    if same and REQUIRED not in canonical.defaults[count:]:
                        direct.setdefault(count, canonical.defaults[count - 1])
        return direct


def _place(values: dict[str, Any], layout: Layout, canonical: Layout) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Canonical arguments from values by name; None when they do not fit. Trailing defaults are left out."""
    values = {**_differing_defaults(layout, canonical), **values}
    args: list[Any] = []
    needed = 0
    for name, default in zip(canonical.positional, canonical.defaults, strict=True):
        value = values.pop(name, default)
        if value is REQUIRED or (value is None and name in canonical.not_none):
            return None
        args.append(_sequence_as_tuple(value) if type(value) in _SEQUENCES else value)
        if not same_value(value, default):
            needed = len(args)
    kwargs: dict[str, Any] = {}
    for name, value in values.items():
        if name in canonical.keywords:
            if not same_value(value, canonical.keywords[name]):
                kwargs[name] = value
        elif name == "out":
            if value is not None:
                kwargs[name] = value
        elif name not in _IGNORED and not same_value(value, layout.default(name)):
            return None
    return tuple(args[:needed]), kwargs


@cache
def _differing_defaults(layout: Layout, canonical: Layout) -> dict[str, Any]:
    """Defaults of the spelling that the canonical layout does not share."""
    differing = {}
    for name in layout.names & canonical.names:
        default = layout.default(name)
        if default is not REQUIRED and not same_value(default, canonical.default(name)):
            differing[name] = default
    return differing


def _sequence_as_tuple(value: Any) -> Any:
    """Sizes and dimensions as a tuple, so that equal calls look equal; lists of anything else stay."""
    return tuple(value) if all(isinstance(item, int | torch.SymInt) for item in value) else value
