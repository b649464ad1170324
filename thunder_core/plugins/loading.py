"""Imports of plugins, and of what they offer, with every failure recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import pluggy

from thunder_core.errors import PluginError
from thunder_core.plugins import hookspecs
from thunder_core.plugins.discovery import Found
from thunder_core.plugins.distributions import repair
from thunder_core.plugins.importing import FAILURES, failure, imported
from thunder_core.plugins.registration import InvalidPlugin, register
from thunder_core.plugins.selection import CORE_PLUGIN
from thunder_core.plugins.specs import (
    TABLES,
    Check,
    ExecutorSpec,
    FrontEndSpec,
    InterceptionsSpec,
    SymbolsSpec,
    TransformSpec,
)
from thunder_core.plugins.table import WORDS, Loaded, Offered, PluginTable

Loadable = ExecutorSpec | TransformSpec | FrontEndSpec | SymbolsSpec | InterceptionsSpec | Check
"""Specifications with something behind them that can be imported."""


def load(table: PluginTable, manager: pluggy.PluginManager, found: Found) -> Loaded:
    """Import a plugin, register it and ask what it offers.

    Raises:
        PluginError: one of these failed; the table has it.
    """
    try:
        plugin = imported(found.target)
    except FAILURES as error:
        raise _failed(table, found, "it cannot be imported", found.target, error) from error
    with table.lock:
        usable = table.usable(found.record.name)
        if isinstance(usable, Loaded):  # another thread was faster
            return usable
        try:
            specs = register(manager, found.record.name, plugin, of_core=found.record.name == CORE_PLUGIN)
        except FAILURES as error:
            raise _failed(table, found, "one of its hooks fails", found.target, error) from error
        return table.add(found, specs)


def unregistered_specs(found: Found) -> tuple[object, ...]:
    """What a plugin that cannot be used offers, as far as it can be imported; nothing of it is registered."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        return register(manager, found.record.name, imported(found.target), of_core=False)
    except FAILURES:  # why it cannot be used is known already
        return ()


def import_object(table: PluginTable, item: Offered[Any] | Loadable) -> Any:
    """What is behind a specification of a loaded plugin, whose symbols are added before.

    Raises:
        PluginError: one of these failed; the table has it.
        ValueError: no loaded plugin offers it.
    """
    spec = item.spec if isinstance(item, Offered) else item
    loaded = next((loaded for loaded in table.loaded() if any(spec is own for own in loaded.specs)), None)
    if loaded is None:
        raise ValueError(f"{spec} is offered by no plugin that is loaded")
    if not isinstance(spec, Check):  # checks are run where something is broken
        use(table, loaded)
    try:
        return imported(spec.load)
    except FAILURES as error:
        what = f"its {WORDS[type(spec)]} {spec.load} cannot be imported"
        raise _failed(table, _found(table, loaded), what, spec.load, error) from error


def use(table: PluginTable, loaded: Loaded) -> None:
    """Add the symbols and the interceptions of a plugin that a configuration names.

    Raises:
        PluginError: one of these failed; the table has it.
    """
    what = "its symbols cannot be added"
    try:
        add_symbols(loaded)
        what = "its interceptions cannot be added"
        add_interceptions(loaded)
    except FAILURES as error:
        tables = ", ".join(spec.load for spec in loaded.specs if isinstance(spec, TABLES))
        raise _failed(table, _found(table, loaded), what, tables, error) from error


def _found(table: PluginTable, loaded: Loaded) -> Found:
    return next(found for found in table.found if found.record.name == loaded.plugin.name)


def _failed(table: PluginTable, found: Found, what: str, target: str, error: BaseException) -> PluginError:
    why = str(error) if isinstance(error, InvalidPlugin) else f"{what}: {failure(error, target)}"
    return table.fail(found, why, repair(found.record.distribution, "lib" if found.has_library else ""), error)


Kind = TypeVar("Kind")


def add_symbols(loaded: Loaded) -> None:
    """Add the rows and rules that the plugin offers. Those that are there already, the same objects, stay.

    Raises:
        InvalidPlugin: what it offers are no rows, or no rules.
        ValueError: a row contradicts another, or names a function that there is not; or an operation has two rules.
        BaseException: whatever importing them raises.
    """
    for spec in loaded.of(SymbolsSpec):
        # Imported when used: who only lists plugins need not wait for PyTorch.
        from thunder_core.symbols.registry import registry
        from thunder_core.symbols.row import Row

        registry.extend(_all(spec.load, Row))
        if spec.rules:
            from thunder_core.autodiff.rules import add_rules

            add_rules(_rules(spec.rules))


def add_interceptions(loaded: Loaded) -> None:
    """Add the interceptions that the plugin offers, likewise.

    Raises:
        InvalidPlugin: what it offers are no interceptions.
        ValueError: a function is intercepted already, or there is none.
        BaseException: whatever importing them raises.
    """
    for spec in loaded.of(InterceptionsSpec):
        from thunder_core.acquire import interceptions
        from thunder_core.acquire.interception import Interception
        from thunder_core.tracing.user_frames import add_internal_package

        interceptions.add_interceptions(_all(spec.load, Interception))
        package = sys.modules[spec.load.partition(":")[0].partition(".")[0]]
        add_internal_package(os.path.dirname(str(package.__file__)))


def _rules(load: str) -> Mapping[str, Callable[..., Any]]:
    """What a specification leads to, if that is a mapping from names to functions."""
    found = imported(load)
    if not isinstance(found, Mapping) or not all(isinstance(name, str) and callable(found[name]) for name in found):
        raise InvalidPlugin(f"{load} is no mapping from names of operations to functions")
    return found


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
