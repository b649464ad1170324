"""The host: discovers plugins, and loads those that a configuration names.

If a plugin that a configuration *names* cannot be loaded, an error with the command that repairs it is raised. If it is
only *installed*, its state is recorded, without an error. With ``THUNDER_STRICT=1`` in the environment, `Host.load_all`
raises an error for defects of installed plugins, too.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from typing import Any, NoReturn

import pluggy

from thunder_core._version import __version__
from thunder_core.errors import PluginError, PluginWarning, is_strict
from thunder_core.forking import renew_in_child
from thunder_core.plugins import builtin, hookspecs
from thunder_core.plugins.discovery import discover
from thunder_core.plugins.distributions import CORE, CORE_PLUGIN, repair
from thunder_core.plugins.importing import FAILURES, failure, imported
from thunder_core.plugins.registration import InvalidPlugin, register
from thunder_core.plugins.specs import TABLES, CheckSpec, CommandSpec, FrontEndSpec, Loadable
from thunder_core.plugins.states import (
    Offered,
    PluginRecord,
    PluginState,
    Spec,
    defects,
    refusal,
    unknown_plugin,
)
from thunder_core.plugins.tables import add_symbols


class Host:
    """The plugins of one process. Thread-safe; a plugin is registered once, on first use.

    Attributes:
        manager: pluggy's plugin manager, with the hooks of `thunder_core.plugins.hookspecs`.
    """

    def __init__(self) -> None:
        self.manager = new_manager()
        self._records: list[PluginRecord] | None = None
        self._loaded: dict[str, PluginRecord] = {}
        self._with_tables: dict[str, PluginRecord] = {}  # those whose tables were added
        # Held while records change. No module of a plugin is imported under it: Python has a lock for each import, and
        # two threads that acquire both locks in different orders would deadlock.
        self._lock = threading.RLock()
        renew_in_child(self, "_lock")

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """All installed plugins, the core first, also those that share a name. The first access discovers them.

        Raises:
            PluginError: the environment variable ``THUNDER_PLUGINS`` is not valid.
        """
        with self._lock:
            if self._records is None:
                self._records = discover()
                if CORE_PLUGIN in self._loaded:
                    self._replace(replace(self._loaded[CORE_PLUGIN], version=self._records[0].version))
            return tuple(self._records)

    def load(self, name: str) -> PluginRecord:
        """Import and register the plugin, unless it is registered. The core is loaded without discovering plugins.

        Warns about a plugin that does not declare its interface (`PluginWarning`).

        Raises:
            PluginError: it is not installed or cannot be used. ``__cause__`` is the exception of the plugin, if any.
        """
        if name == CORE_PLUGIN:
            return self._load_core()
        record, registered = self._usable(name)
        if registered:
            return record
        try:
            plugin = imported(record.target)
        except FAILURES as error:
            self._fail(record, "it cannot be imported", record.target, error)
        with self._lock:
            record, registered = self._usable(name)
            if registered:  # by another thread
                return record
            try:
                specs = register(self.manager, name, plugin)
            except FAILURES as error:
                self._fail(record, "one of its hooks fails", record.target, error)
            record = self._replace(replace(record, state=PluginState.LOADED, specs=specs))
        if record.why:
            warnings.warn(f"the {record.title}: {record.why}: {record.advice}", PluginWarning, stacklevel=2)
        return record

    def load_all(self) -> None:
        """Load every plugin that can be loaded. Failures are recorded.

        Raises:
            PluginError: a plugin has a defect, and the environment has ``THUNDER_STRICT=1``.
        """
        for record in self.records:
            if record.state is PluginState.AVAILABLE:
                try:
                    self.load(record.name)
                except PluginError:
                    continue  # the record has the error
        error = defects(self.records) if is_strict() else None
        if error is not None:
            raise error

    def offered(self, kind: type[Spec]) -> tuple[Offered[Spec], ...]:
        """The specifications of one kind of all loaded plugins, in the order of `records`."""
        with self._lock:
            names = dict.fromkeys(record.name for record in self.records)
            loaded = [self._loaded[name] for name in names if name in self._loaded]
        return tuple(Offered(record, spec) for record in loaded for spec in record.of(kind))

    def import_object(self, item: Offered[Any] | Loadable, target: str = "") -> Any:
        """Add the tables of the plugin, and import the object at the path ``load`` of one of its specifications.

        Args:
            item: the specification.
            target: another path of the specification, whose object is imported instead.

        If the import fails, the state of the plugin in `records` is ``FAILED``; its other specifications stay usable.

        Raises:
            PluginError: the tables cannot be added, or the object cannot be imported. ``__cause__`` is the exception
                of the plugin.
            ValueError: no loaded plugin has the specification.
        """
        spec = item.spec if isinstance(item, Offered) else item
        with self._lock:
            loaded = tuple(self._loaded.values())
        plugin = next((record for record in loaded if any(spec is other for other in record.specs)), None)
        if plugin is None:
            raise ValueError(f"{spec} is not offered by a loaded plugin")
        if not isinstance(spec, CheckSpec | CommandSpec):  # checks run although tables fail, commands without PyTorch
            self._add_tables(plugin)
        target = target or spec.load
        try:
            return imported(target)
        except FAILURES as error:
            self._fail(plugin, f"its {spec.word} {target} cannot be imported", target, error)

    def use(self, item: Offered[Any]) -> None:
        """Add the tables of the plugin that has this specification, without importing its object.

        Raises:
            PluginError: they cannot be added.
        """
        self._add_tables(self.load(item.plugin.name))

    def _add_tables(self, plugin: PluginRecord) -> None:
        if self._with_tables.get(plugin.name) is plugin:
            return
        with self._lock:
            plugins = (self._load_core(), *self._loaded.values())
            loaders = dict.fromkeys(
                [table for one in plugins for spec in one.of(FrontEndSpec) for table in spec.tables]
            )
        problem = "its symbols cannot be added"
        try:
            add_symbols(plugin)
            for kind, load in loaders:
                if plugin.of(kind):
                    problem = f"its {kind.word} cannot be added"
                    imported(load)(plugin)
        except FAILURES as error:
            tables = ", ".join(spec.load for spec in plugin.specs if isinstance(spec, TABLES))
            self._fail(plugin, problem, tables, error)
        self._with_tables[plugin.name] = plugin

    def _load_core(self) -> PluginRecord:
        with self._lock:
            if CORE_PLUGIN not in self._loaded:
                specs = register(self.manager, CORE_PLUGIN, builtin)
                version = __version__ if self._records is None else self._records[0].version
                self._replace(PluginRecord(CORE_PLUGIN, CORE, version, PluginState.LOADED, specs=specs))
            return self._loaded[CORE_PLUGIN]

    def _usable(self, name: str) -> tuple[PluginRecord, bool]:
        """The record of a plugin that is registered or can be loaded, and whether it is registered.

        Raises:
            PluginError: it is not installed or cannot be used.
        """
        with self._lock:
            if name in self._loaded:
                return self._loaded[name], True
            named = [record for record in self.records if record.name == name]
            if not named:
                raise unknown_plugin(name, self.records)
            if named[0].state is not PluginState.AVAILABLE:
                raise refusal(named) from named[0].cause
            return named[0], False

    def _fail(self, plugin: PluginRecord, problem: str, target: str, error: BaseException) -> NoReturn:
        """Record that the plugin, or a part of it, cannot be used, and raise PluginError."""
        why = str(error) if isinstance(error, InvalidPlugin) else f"{problem}: {failure(error, target)}"
        advice = repair(plugin.distribution, "lib" if plugin.has_library else "")
        with self._lock:
            plugin = self._loaded.get(plugin.name, plugin)
            failed = replace(plugin, state=PluginState.FAILED, why=why, advice=advice, cause=error)
            raise refusal([self._replace(failed)]) from error

    def _replace(self, record: PluginRecord) -> PluginRecord:
        """Replace the record of the plugin by this one, and return it. The lock must be held."""
        if record.specs or record.state is PluginState.LOADED:
            self._loaded[record.name] = record
        key = (record.name, record.distribution)
        self._records = self._records and [
            record if (other.name, other.distribution) == key else other for other in self._records
        ]
        return record


def new_manager() -> pluggy.PluginManager:
    """A plugin manager with the hooks, without plugins."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


class _Process:
    """The host of this process, and the lock for its creation."""

    lock = threading.Lock()
    host: Host | None = None


renew_in_child(_Process, "lock")


def host() -> Host:
    """The host of this process, created on first use."""
    with _Process.lock:
        if _Process.host is None:
            _Process.host = Host()
        return _Process.host


def reset_host() -> None:
    """Discard the host: the next one discovers plugins again. Imported modules stay imported."""
    with _Process.lock:
        _Process.host = None
