"""Map the arguments of one spelling of an operation to the canonical arguments of its symbol.

A layout is written like a Python signature without annotations: ``"input, dim=None, *, dtype=None"``. A starred name
(``"input, *shape"``) collects integers, passed one by one or as one sequence, into one tuple.

The form of a call is the number of its positional arguments and the names of its keyword arguments. Parameters are
matched by name once for each form (`Placement`); later calls of that form only reorder values.
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
    """The class of `REQUIRED`, the default of a parameter without one."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
# NumPy's names of parameters, which PyTorch's argument parser accepts.
_NUMPY_NAMES: Final = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "a": "input", "x2": "other"}


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The parameters of one spelling.

    Attributes:
        positional: names of the parameters that may be passed by position, in order.
        defaults: their defaults, `REQUIRED` for those without.
        variadic: whether the last positional parameter collects the remaining arguments into a tuple.
        keywords: keyword-only parameters and their defaults.
        not_none: parameters that do not accept None; written ``dim!``.
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
        """The names of all parameters."""
        return frozenset(self.positional) | frozenset(self.keywords)

    def default(self, name: str) -> Any:
        """The default of a parameter; `REQUIRED` if it has none."""
        if name in self.keywords:
            return self.keywords[name]
        return self.defaults[self.positional.index(name)]

    def match(self, count: int, keywords: tuple[str, ...]) -> dict[str, int] | None:
        """The index of each parameter's argument, for ``count`` positional arguments and these keywords.

        Positional arguments are numbered first. None if the arguments do not fit the layout.
        """
        if count > len(self.positional):
            return None
        positions = {name: number for number, name in enumerate(self.positional[:count])}
        for number, keyword in enumerate(keywords, start=count):
            is_name = keyword in self.keywords or keyword in self.positional or keyword == "out"
            name = keyword if is_name else self.aliases.get(keyword)
            if name is None or name in positions:
                return None
            positions[name] = number
        return positions

    def collect(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The positional arguments, with the variadic ones collected into one tuple."""
        count = len(self.positional)
        if not self.variadic or len(args) < count:
            return args
        return (*args[: count - 1], _as_one_tuple(args[count - 1 :]))


def _as_one_tuple(values: tuple[Any, ...]) -> Any:
    """``(2, 3)`` for both ``(2, 3)`` and ``((2, 3),)``. A single value other than an integer is returned unchanged."""
    if len(values) != 1:
        return values
    only = values[0]
    if isinstance(only, tuple | list):
        return tuple(only)
    return values if isinstance(only, Integral) else only  # `int` would exclude NumPy's integers


def same_value(value: Any, default: Any) -> bool:
    """Whether an argument equals its parameter's default. Types must be equal, too: ``1.0`` is not ``1``.

    False for tensors, without a comparison of their values.
    """
    return value is default or (type(value) is type(default) and type(value) in _PLAIN and bool(value == default))


_PLAIN: Final = frozenset({int, float, bool, str, tuple})


@cache
def parse_layout(text: str) -> Layout:
    """The layout that is written as this signature."""
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
    aliases.update({other: name for other, name in _NUMPY_NAMES.items() if name in positional or name in keywords})
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
"""Keyword arguments without an effect on the result."""
_SEQUENCES: Final = frozenset({list, torch.Size})
"""Types of sizes and dimensions that become tuples."""
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Placement:
    """The mapping from the values of a call, ``(*args, *kwargs.values(), *constants)``, to canonical arguments.

    Attributes:
        sources: for each canonical positional parameter, the index of its value.
        constants: the values of omitted arguments: defaults of the spelling, or else of the symbol.
        defaults: for each canonical positional parameter, its default.
        keywords: for each canonical keyword argument, its name, the index of its value, and its default.
        fixed: for each argument that the symbol lacks, the index of its value, and the default, which it must equal.
        not_none: indices of values that must not be None.
        inplace: index of the argument ``inplace``; -1 if there is none.
    """

    sources: tuple[int, ...]
    constants: tuple[Any, ...]
    defaults: tuple[Any, ...]
    keywords: tuple[tuple[str, int, Any], ...]
    fixed: tuple[tuple[int, Any], ...]
    not_none: tuple[int, ...]
    inplace: int

    def place(self, values: tuple[Any, ...]) -> Arguments | None:
        """Canonical arguments without trailing defaults; None if the values do not fit."""
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
            if type(value) in _SEQUENCES:
                args[position] = _sequence_as_tuple(value)
        kwargs = {}
        for name, index, default in self.keywords:
            value = values[index]
            if not same_value(value, default):
                kwargs[name] = value
        return tuple(args), kwargs


def _sequence_as_tuple(value: Any) -> Any:
    """A list of integers (sizes, dimensions) as a tuple, so that equal calls are equal; other values unchanged."""
    return tuple(value) if all(isinstance(item, int | SizeExpr | torch.SymInt) for item in value) else value


def _make_placement(layout: Layout, canonical: Layout, count: int, keywords: tuple[str, ...]) -> Placement | None:
    """The placement of calls of one form; None if they do not fit the layouts.

    Args:
        layout: the layout of the spelling.
        canonical: the layout of the symbol.
        count: the number of positional arguments.
        keywords: the names of the keyword arguments.
    """
    positions = layout.match(count, keywords)
    if positions is None:
        return None
    constants: list[Any] = []

    def source(name: str) -> int:
        """The index of the value of a canonical parameter."""
        if name in positions:
            return positions[name]
        default = layout.default(name) if name in layout.names else REQUIRED
        constants.append(canonical.default(name) if default is REQUIRED else default)
        return count + len(keywords) + len(constants) - 1

    sources = tuple(source(name) for name in canonical.positional)
    placed = [(name, source(name), default) for name, default in canonical.keywords.items()]
    if any(constant is REQUIRED for constant in constants):
        return None
    rest = {name: index for name, index in positions.items() if name not in canonical.names and name not in IGNORED}
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
"""A symbol with its positional and keyword arguments."""
Rule = Callable[[tuple[Any, ...], dict[str, Any]], Call]
"""Returns the canonical call for the arguments of a spelling."""


def unchanged_rule(symbol: Symbol) -> Rule:
    """The rule that calls ``symbol`` with unchanged arguments."""
    return lambda args, kwargs: (symbol, args, kwargs)


def adapter_rule(symbol: Symbol, adapter: Adapter, fallback: Rule) -> Rule:
    """The rule that calls ``symbol`` with the arguments of ``adapter``, or ``fallback`` if that returns None."""

    def rule(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        adapted = adapter(args, kwargs)
        return fallback(args, kwargs) if adapted is None else (symbol, *adapted)

    return rule


@dataclass(frozen=True, slots=True)
class Binder:
    """Maps calls of one spelling to canonical calls.

    Attributes:
        symbol: the symbol of the spelling.
        inplace: the symbol of calls with ``inplace=True``; None if there is none.
        canonical: the layouts of the symbol.
        layouts: the layouts of the spelling.
        fallback: the rule for arguments that fit no layout.
        placements: for each layout, the placements of the forms of calls so far.
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
        """The rule of this spelling, with a fast path for calls whose arguments are canonical already."""
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
        """The canonical call, by the first layout that the arguments fit."""
        for layout, placements_by_form in self.placements:
            positional = layout.collect(args) if layout.variadic else args
            form = (len(positional), *kwargs)
            placements = placements_by_form.get(form)
            if placements is None:
                placements = placements_by_form[form] = self._placements(layout, len(positional), tuple(kwargs))
            for placement in placements:
                values = (*positional, *kwargs.values(), *placement.constants)
                inplace = placement.inplace >= 0 and bool(values[placement.inplace])
                symbol = self.inplace if inplace else self.symbol
                arguments = None if symbol is None else placement.place(values)
                if symbol is not None and arguments is not None:
                    return symbol, *arguments
        return self.fallback(args, kwargs)

    def _placements(self, layout: Layout, count: int, keywords: tuple[str, ...]) -> tuple[Placement, ...]:
        """The placements of calls of one form, for each canonical layout that they fit."""
        candidates = (_make_placement(layout, canonical, count, keywords) for canonical in self.canonical)
        return tuple(placement for placement in candidates if placement is not None)

    def _collects(self) -> bool:
        """Whether the only layout is ``input, *sizes``, and the canonical one has the same parameters."""
        if len(self.layouts) > 1 or len(self.canonical) > 1:
            return False
        layout, canonical = self.layouts[0], self.canonical[0]
        same = layout.positional == canonical.positional and len(layout.positional) == 2
        return layout.variadic and same and not _differing_defaults(layout, canonical)

    def _collecting_rule(self) -> Rule:
        """The rule for `_collects`, with a fast path for integers and for a tuple."""
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
        """The numbers of positional arguments with which a call is canonical, each with the default of the last one.

        Provided that the last argument does not equal its default, and no argument is one of `_SEQUENCES`.
        """
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
    """Whether a parameter of the spelling has another default than in the symbol."""
    shared = [(layout.default(name), canonical.default(name)) for name in layout.names & canonical.names]
    return any(default is not REQUIRED and not same_value(default, other) for default, other in shared)
