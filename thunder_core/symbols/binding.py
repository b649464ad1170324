"""How the arguments of one spelling become the canonical arguments of its symbol.

A layout is written like a Python signature without annotations: ``"input, dim=None, *, dtype=None"``. A starred name
(``"input, *shape"``) collects integers given one by one or as one sequence, and stands for one tuple.

Matching names is done once for each form; a call then only moves values.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral
from typing import Any, Final

import torch

from thunder_core.ir.size import SizeExpr
from thunder_core.ir.symbol import Symbol
from thunder_core.symbols.row import Adapter


class _Required:
    """Stands where a parameter has no default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
# Spellings of NumPy that PyTorch's argument parser accepts.
NUMPY_NAMES: Final = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "a": "input", "x2": "other"}


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Parameters of one spelling.

    Attributes:
        positional: names of the parameters that may be given by position, in order.
        defaults: their defaults, `REQUIRED` where there is none.
        variadic: the last positional parameter collects the remaining ones into a tuple.
        keywords: keyword-only parameters and their defaults.
        not_none: parameters for which None does not fit; written ``dim!``.
        aliases: other keywords for a parameter; written ``dim0/axis0``.
    """

    positional: tuple[str, ...]
    defaults: tuple[Any, ...]
    variadic: bool
    keywords: dict[str, Any]
    not_none: frozenset[str]
    aliases: dict[str, str]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.positional) | frozenset(self.keywords)

    def default(self, name: str) -> Any:
        """The default of a parameter; `REQUIRED` when it has none."""
        if name in self.keywords:
            return self.keywords[name]
        return self.defaults[self.positional.index(name)]

    def match(self, count: int, keywords: tuple[str, ...]) -> dict[str, int] | None:
        """For a call with ``count`` positional arguments and these keywords the number of each parameter's argument.

        Positional arguments are numbered first. None when they do not fit.
        """
        if count > len(self.positional):
            return None
        found = {name: number for number, name in enumerate(self.positional[:count])}
        for number, keyword in enumerate(keywords, start=count):
            known = keyword in self.keywords or keyword in self.positional or keyword == "out"
            name = keyword if known else self.aliases.get(keyword)
            if name is None or name in found:
                return None
            found[name] = number
        return found

    def collect(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Positional arguments with the variadic ones as one tuple."""
        count = len(self.positional)
        if not self.variadic or len(args) < count:
            return args
        return (*args[: count - 1], as_one_tuple(args[count - 1 :]))


def as_one_tuple(values: tuple[Any, ...]) -> Any:
    """``(2, 3)`` from ``(2, 3)`` as well as from ``((2, 3),)``; a lone value that is no integer stays itself."""
    if len(values) != 1:
        return values
    only = values[0]
    if isinstance(only, tuple | list):
        return tuple(only)
    return values if isinstance(only, Integral) else only  # NumPy's integers are no `int`


def same_value(value: Any, default: Any) -> bool:
    """Whether an argument is its parameter's default. Types must agree (``1.0`` is not ``1``); tensors never are."""
    return value is default or (type(value) is type(default) and type(value) in _PLAIN and bool(value == default))


_PLAIN: Final = frozenset({int, float, bool, str, tuple})


@cache
def parse_layout(text: str) -> Layout:
    """Read a layout from its signature text."""
    positional: list[str] = []
    defaults: list[Any] = []
    keywords: dict[str, Any] = {}
    not_none: set[str] = set()
    aliases: dict[str, str] = {}
    variadic = keyword_only = False
    for item in _split(text):
        names, _, default_text = item.partition("=")
        name, *others = names.removesuffix("!").split("/")
        aliases.update(dict.fromkeys(others, name))
        if names.endswith("!"):
            not_none.add(name)
        default = ast.literal_eval(default_text) if default_text else REQUIRED
        if name.startswith("*"):
            keyword_only, variadic = True, len(name) > 1
            if variadic:
                positional.append(name[1:])
                defaults.append(default)
        elif keyword_only:
            keywords[name] = default
        else:
            positional.append(name)
            defaults.append(default)
    aliases.update({other: name for other, name in NUMPY_NAMES.items() if name in positional})
    return Layout(tuple(positional), tuple(defaults), variadic, keywords, frozenset(not_none), aliases)


def _split(text: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    items, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth == 0:
            items.append(text[start:position].strip())
            start = position + 1
    items.append(text[start:].strip())
    return [item for item in items if item]


IGNORED: Final = frozenset({"_stacklevel"})
SEQUENCES: Final = frozenset({list, torch.Size})
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Placement:
    """How the values of a call, ``(*args, *kwargs.values(), *constants)``, become canonical arguments.

    Attributes:
        sources: for each canonical position the index of its value.
        constants: defaults of the spelling or of the symbol for what the call leaves out.
        defaults: for each canonical position its default.
        keywords: name, index and default of the canonical keyword arguments.
        fixed: index and default of the parameters that the symbol lacks.
        not_none: indices that None does not fit.
        inplace: index of the argument ``inplace``; -1 when there is none.
    """

    sources: tuple[int, ...]
    constants: tuple[Any, ...]
    defaults: tuple[Any, ...]
    keywords: tuple[tuple[str, int, Any], ...]
    fixed: tuple[tuple[int, Any], ...]
    not_none: tuple[int, ...]
    inplace: int

    def place(self, values: tuple[Any, ...]) -> Arguments | None:
        """Canonical arguments; None when the values do not fit. Defaults at the end are left out."""
        for index, default in self.fixed:
            if not same_value(values[index], default):
                return None
        for index in self.not_none:
            if values[index] is None:
                return None
        args = [values[index] for index in self.sources]
        defaults = self.defaults
        while args:
            value, default = args[-1], defaults[len(args) - 1]
            if value is not default and (type(value) is not type(default) or value != default):
                break
            args.pop()
        for position, value in enumerate(args):
            if type(value) in SEQUENCES:
                args[position] = sequence_as_tuple(value)
        kwargs = {}
        for name, index, default in self.keywords:
            value = values[index]
            if not same_value(value, default):
                kwargs[name] = value
        return tuple(args), kwargs


def sequence_as_tuple(value: Any) -> Any:
    """Sizes and dimensions as a tuple, so that equal calls look equal; lists of anything else stay."""
    return tuple(value) if all(isinstance(item, int | SizeExpr | torch.SymInt) for item in value) else value


def make_placement(layout: Layout, canonical: Layout, count: int, keywords: tuple[str, ...]) -> Placement | None:
    """The placement of calls with ``count`` positional arguments and these keywords; None when they do not fit."""
    found = layout.match(count, keywords)
    if found is None:
        return None
    constants: list[Any] = []

    def source(name: str) -> int:
        """Where the value of a canonical parameter comes from."""
        if name in found:
            return found[name]
        own = layout.default(name) if name in layout.names else REQUIRED
        constants.append(canonical.default(name) if own is REQUIRED else own)
        return count + len(keywords) + len(constants) - 1

    sources = tuple(source(name) for name in canonical.positional)
    placed = [(name, source(name), default) for name, default in canonical.keywords.items()]
    if any(constant is REQUIRED for constant in constants):
        return None
    rest = {name: index for name, index in found.items() if name not in canonical.names and name not in IGNORED}
    if "out" in rest:
        placed.append(("out", rest.pop("out"), None))
    inplace = rest.pop("inplace", -1)
    return Placement(
        sources,
        tuple(constants),
        canonical.defaults,
        tuple(placed),
        tuple((index, layout.default(name)) for name, index in rest.items()),
        tuple(index for name, index in zip(canonical.positional, sources, strict=True) if name in canonical.not_none),
        inplace,
    )


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
