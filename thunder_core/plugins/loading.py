"""Imports of plugins, and of what they offer, with every failure recorded."""

from __future__ import annotations

from typing import Any

import pluggy

from thunder_core.errors import PluginError
from thunder_core.plugins import hookspecs
from thunder_core.plugins.discovery import Found
from thunder_core.plugins.distributions import repair
from thunder_core.plugins.importing import FAILURES, failure, imported
from thunder_core.plugins.loaded import WORDS, Loaded, Offered
from thunder_core.plugins.own_symbols import add_symbols
from thunder_core.plugins.registration import register
from thunder_core.plugins.selection import CORE_PLUGIN
from thunder_core.plugins.specs import Check, ExecutorSpec, FrontEndSpec, SymbolsSpec, TransformSpec
from thunder_core.plugins.table import PluginTable
from thunder_core.plugins.validation import InvalidPlugin

Loadable = ExecutorSpec | TransformSpec | FrontEndSpec | SymbolsSpec | Check
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
    found = next(found for found in table.found if found.record.name == loaded.plugin.name)
    what = "its symbols cannot be added"
    try:
        if not isinstance(spec, Check):  # checks are run where something is broken
            add_symbols(loaded)
        what = f"its {WORDS[type(spec)]} {spec.load} cannot be imported"
        return imported(spec.load)
    except FAILURES as error:
        raise _failed(table, found, what, spec.load, error) from error


def _failed(table: PluginTable, found: Found, what: str, target: str, error: BaseException) -> PluginError:
    why = str(error) if isinstance(error, InvalidPlugin) else f"{what}: {failure(error, target)}"
    return table.fail(found, why, repair(found.record.distribution, "lib" if found.has_library else ""), error)
