"""Operations that plugins define, added to the tables of symbols."""

from __future__ import annotations

from collections.abc import Iterable

from thunder_core.plugins.importing import imported
from thunder_core.plugins.loaded import Loaded
from thunder_core.plugins.specs import SymbolsSpec
from thunder_core.plugins.validation import InvalidPlugin


def add_symbols(loaded: Loaded) -> None:
    """Add the rows that the plugin offers. Those that are there already, the same objects, stay.

    Raises:
        InvalidPlugin: what it offers are no rows.
        ValueError: a row contradicts another, or names a function that there is not.
        BaseException: whatever importing them raises.
    """
    for spec in loaded.of(SymbolsSpec):
        # Imported when used: who only lists plugins need not wait for PyTorch.
        from thunder_core.symbols.registry import registry
        from thunder_core.symbols.row import Row

        rows = imported(spec.load)
        if not isinstance(rows, Iterable) or isinstance(rows, str):
            raise InvalidPlugin(f"{spec.load} is {type(rows).__name__}, and not a list of Row")
        rows = tuple(rows)
        for row in rows:
            if not isinstance(row, Row):
                raise InvalidPlugin(f"{spec.load} holds {type(row).__name__}, and not only Row")
        registry.extend(rows)
