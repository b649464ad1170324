"""Add the symbols, derivative rules and interceptions of a plugin to the compiler, when the plugin is first used.

The modules of the compiler are imported here when a plugin needs them: listing plugins must not import PyTorch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from thunder_core.plugins.importing import imported
from thunder_core.plugins.registration import InvalidPlugin
from thunder_core.plugins.specs import InterceptionsSpec, SymbolsSpec, TensorClassesSpec
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

        registry.extend(_items(spec.load, Row))
        if spec.rules:
            from thunder_core.autodiff.derivatives.rules import add_rules

            add_rules(_rules(spec.rules))


def add_interceptions(plugin: PluginRecord) -> None:
    """Add the interceptions of the plugin. Has no effect on those that were added before.

    Raises:
        InvalidPlugin: a table has something else than interceptions.
        ValueError: a function has an interception already, or does not exist.
        BaseException: whatever importing the tables raises.
    """
    for spec in plugin.of(InterceptionsSpec):
        from thunder_core.acquire import interceptions
        from thunder_core.acquire.communication import Communication
        from thunder_core.acquire.interception import Interception
        from thunder_core.tracing.frames import add_internal_package

        interceptions.add_interceptions(_items(spec.load, Interception, Communication))
        add_internal_package(_package_folder(spec.load))


def exclude_from_guards(plugin: PluginRecord) -> None:
    """Exclude packages of the plugin that add guards themselves from observed frames and from user locations.

    Raises:
        BaseException: whatever importing the packages raises.
    """
    folders: list[str] = []
    for spec in plugin.of(TensorClassesSpec):
        imported(spec.load)
        folders.append(_package_folder(spec.load))
    for table in plugin.of(InterceptionsSpec):
        if table.unobserved:
            folders.append(os.path.dirname(imported(table.unobserved).__file__))
    for folder in folders:
        from thunder_core.tracing.frames import add_package

        add_package(folder)


def _package_folder(load: str) -> str:
    """The folder of the top-level package of an imported path."""
    package = sys.modules[load.partition(":")[0].partition(".")[0]]
    return os.path.dirname(os.path.abspath(str(package.__file__)))


def _rules(load: str) -> Mapping[str, Callable[..., Any]]:
    """The mapping from names to functions at the path ``load``."""
    rules = imported(load)
    if not isinstance(rules, Mapping) or not all(isinstance(name, str) and callable(rules[name]) for name in rules):
        raise InvalidPlugin(f"{load} is not a mapping from names of operations to functions")
    return rules


def _items(load: str, *kinds: type[Any]) -> tuple[Any, ...]:
    """The objects of these classes in the iterable at the path ``load``."""
    items, names = imported(load), " and ".join(kind.__name__ for kind in kinds)
    if not isinstance(items, Iterable) or isinstance(items, str):
        raise InvalidPlugin(f"{load} is {type(items).__name__}, and not a list of {names}")
    items = tuple(items)
    for item in items:
        if not isinstance(item, kinds):
            raise InvalidPlugin(f"{load} holds {type(item).__name__}, and not only {names}")
    return items
