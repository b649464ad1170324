"""Placements: for one form of call (so many positional arguments, these keywords) where each argument goes.

Matching names is done once for each form; a call then only moves values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.ir.size import SizeExpr
from thunder_core.symbols.layout import REQUIRED, Layout, same_value

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
