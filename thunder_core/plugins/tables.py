"""Add the symbols and derivative rules of a plugin to the compiler, when the plugin is first used.

The modules of the compiler are imported here when a plugin needs them: listing plugins must not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from thunder_core.plugins.importing import imported
from thunder_core.plugins.registration import InvalidPlugin
from thunder_core.plugins.specs import SymbolsSpec
from thunder_core.plugins.states import PluginRecord


def add_symbols(plugin: PluginRecord) -> None:
    """Add the rows and derivative rules of the plugin. Has no effect on those that were added before.

    Raises:
        InvalidPlugin: a table has something else than rows or rules.
        ValueError: a row contradicts another or names a function that does not exist; or an operation has two rules.
        BaseException: whatever importing the tables raises.
    """
    for spec in plugin.of(SymbolsSpec):
        from thunder_core.symbols.registry import registry
        from thunder_core.symbols.row import Row

        registry.extend(items_of(spec.load, Row))
        if spec.rules:
            from thunder_core.autodiff.derivatives.rules import add_rules

            add_rules(_rules(spec.rules))


def _rules(load: str) -> Mapping[str, Callable[..., Any]]:
    """The mapping from names to functions at the path ``load``."""
    rules = imported(load)
    if not isinstance(rules, Mapping) or not all(isinstance(name, str) and callable(rules[name]) for name in rules):
        raise InvalidPlugin(f"{load} is not a mapping from names of operations to functions")
    return rules


def items_of(load: str, *kinds: type[Any]) -> tuple[Any, ...]:
    """The objects of these classes in the iterable at the path ``load``."""
    items, names = imported(load), " and ".join(kind.__name__ for kind in kinds)
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise InvalidPlugin(f"{load} is {type(items).__name__}, and not a list of {names}")
    items = tuple(items)
    for item in items:
        if not isinstance(item, kinds):
            raise InvalidPlugin(f"{load} holds {type(item).__name__}, and not only {names}")
    return items
