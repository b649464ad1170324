"""Operations that plugins define, added to the tables of symbols and patterns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from thunder_core.plugins.importing import imported
from thunder_core.plugins.loaded import Loaded
from thunder_core.plugins.specs import SymbolsSpec
from thunder_core.plugins.validation import InvalidPlugin

Kind = TypeVar("Kind")


def add_symbols(loaded: Loaded) -> None:
    """Add the rows and patterns that the plugin offers. Those that are there already, the same objects, stay.

    Raises:
        InvalidPlugin: what it offers are no rows, or no patterns.
        ValueError: a row contradicts another, or names a function that there is not.
        BaseException: whatever importing them raises.
    """
    for spec in loaded.of(SymbolsSpec):
        # Imported when used: who only lists plugins need not wait for PyTorch.
        from thunder_core.symbols.registry import registry
        from thunder_core.symbols.row import Row

        registry.extend(_all(spec.load, Row))
        if spec.patterns:
            from thunder_core.passes.patterns import Pattern, add_patterns

            add_patterns(_all(spec.patterns, Pattern))


def _all(load: str, kind: type[Kind]) -> tuple[Kind, ...]:
    """What a specification leads to, if these are objects of the class and nothing else."""
    found = imported(load)
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise InvalidPlugin(f"{load} is {type(found).__name__}, and not a list of {kind.__name__}")
    found = tuple(found)
    for one in found:
        if not isinstance(one, kind):
            raise InvalidPlugin(f"{load} holds {type(one).__name__}, and not only {kind.__name__}")
    return found
