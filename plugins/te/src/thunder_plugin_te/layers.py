"""Selection of layers by the options ``layers`` and ``exclude_layers``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_plugin_te.options import TeOptions

_INTERMEDIATE: Final = re.compile(r"t\d+(_\d+)?")


def excluded(options: TeOptions, bound: BoundSymbol) -> str | None:
    """The reason for which the options exclude the layer of this operation; None if they include it."""
    names = _names(bound)
    for pattern in options.exclude_layers:
        if _matches(pattern, names):
            return f"exclude_layers has {pattern!r}"
    if options.layers and not any(_matches(pattern, names) for pattern in options.layers):
        return f"layers has only {', '.join(map(repr, options.layers))}"
    return None


def unmatched(options: TeOptions, layers: Sequence[BoundSymbol]) -> list[str]:
    """A message for each pattern that matches no layer of a program, except the default patterns."""
    names = [_names(layer) for layer in layers]
    return [
        f"{option} of te: the pattern {pattern!r} matches no layer of this program"
        for option in ("layers", "exclude_layers")
        if option in options.model_fields_set
        for pattern in dict.fromkeys(getattr(options, option))
        if not any(_matches(pattern, layer) for layer in names)
    ]


def site_of(bound: BoundSymbol) -> str:
    """The name of the scales of an operation: that of its weight, or its source location if the weight has none."""
    weight: str = bound.args[1].name
    if not _INTERMEDIATE.fullmatch(weight) or bound.location is None:
        return weight
    return f"{bound.location.function}_{bound.location.line}"


def _names(bound: BoundSymbol) -> tuple[str, ...]:
    weight: str = bound.args[1].name
    location = bound.location
    return (weight,) if location is None else (weight, f"{location.function}: {location.text}")


@lru_cache(maxsize=4096)
def _matches(pattern: str, names: tuple[str, ...]) -> bool:
    """Whether the pattern matches the name of a weight in traces, or a source location."""
    as_name = re.sub(r"[^\w*?\[\]]+", "_", pattern).lower()
    weight, *places = names
    return any(fnmatchcase(weight, form) for form in (as_name, f"*_{as_name}", f"*_{as_name}_weight*")) or any(
        fnmatchcase(place, pattern) for place in places
    )
