"""Rules: how the arguments of one spelling become the canonical arguments of its symbol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thunder_core.ir.symbol import Symbol
from thunder_core.symbols.layout import REQUIRED, Layout, same_value
from thunder_core.symbols.placement import SEQUENCES, Placement, make_placement
from thunder_core.symbols.row import Adapter

Call = tuple[Symbol, tuple[Any, ...], dict[str, Any]]
Rule = Callable[[tuple[Any, ...], dict[str, Any]], Call]


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
        placements: for each layout the forms of call seen so far.
    """

    symbol: Symbol
    inplace: Symbol | None
    canonical: tuple[Layout, ...]
    layouts: tuple[Layout, ...]
    fallback: Rule
    placements: tuple[tuple[Layout, dict[tuple[Any, ...], tuple[Placement, ...]]], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "placements", tuple((layout, {}) for layout in self.layouts))

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
                if type(item) in SEQUENCES:
                    return general(args, kwargs)
            last, default = args[-1], direct[len(args)]
            if last is default or (type(last) is type(default) and last == default):
                return general(args, kwargs)
            return symbol, args, kwargs

        return rule

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Match the arguments with the layouts, one after the other."""
        for layout, placements in self.placements:
            given = layout.collect(args) if layout.variadic else args
            form = (len(given), *kwargs)
            known = placements.get(form)
            if known is None:
                known = placements[form] = self._placements(layout, len(given), tuple(kwargs))
            for placement in known:
                values = (*given, *kwargs.values(), *placement.constants)
                inplace = placement.inplace >= 0 and bool(values[placement.inplace])
                if inplace and self.inplace is None:
                    continue
                placed = placement.place(values)
                if placed is not None:
                    return (self.inplace if inplace and self.inplace else self.symbol), *placed
        return self.fallback(args, kwargs)

    def _placements(self, layout: Layout, count: int, keywords: tuple[str, ...]) -> tuple[Placement, ...]:
        """The placements of one form of call, for each canonical layout that it fits."""
        candidates = (make_placement(layout, canonical, count, keywords) for canonical in self.canonical)
        return tuple(placement for placement in candidates if placement is not None)

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


def _differing_defaults(layout: Layout, canonical: Layout) -> bool:
    """Whether the spelling has other defaults than the symbol, so that leaving out an argument means another value."""
    shared = [(layout.default(name), canonical.default(name)) for name in layout.names & canonical.names]
    return any(own is not REQUIRED and not same_value(own, other) for own, other in shared)
