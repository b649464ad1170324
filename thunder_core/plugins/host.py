"""The host: discovers plugins, loads those that are named, and looks up what they offer.

What is *named* must load, or an error says which command repairs it. What is *merely installed* is recorded and stays
harmless. With ``THUNDER_STRICT=1`` in the environment, defects of merely installed plugins are errors as well, as soon
as all plugins are loaded.
"""

from __future__ import annotations

import threading
from typing import Any

import pluggy

from thunder_core.errors import PluginError, is_strict
from thunder_core.plugins import hookspecs, loading
from thunder_core.plugins.lookup import find
from thunder_core.plugins.states import PluginRecord, PluginState, defects
from thunder_core.plugins.table import Loaded, Offered, PluginTable, Spec

__all__ = ["Host", "Loaded", "Offered", "PluginRecord", "PluginState", "host", "reset_host"]


class Host:
    """The plugins of one process. Threads may share it; a plugin is registered once, on first use.

    Attributes:
        manager: pluggy's, with the hooks of `thunder_core.plugins.hookspecs`.
    """

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        self._table = PluginTable()

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """Every installed plugin, the core first; of a name clash all sides. The first access looks for them.

        Raises:
            PluginError: the environment variable ``THUNDER_PLUGINS`` is not valid.
        """
        return tuple(found.record for found in self._table.found)

    def load(self, name: str) -> Loaded:
        """Import and register the plugin, unless it is loaded.

        Raises:
            PluginError: it is not installed or cannot be used. ``__cause__`` is what the plugin raised, if it did.
        """
        usable = self._table.usable(name)
        return usable if isinstance(usable, Loaded) else loading.load(self._table, self.manager, usable)

    def without_library(self, kind: type[Spec], name: str) -> Offered[Spec] | None:
        """What ``name`` or ``plugin.name`` would mean if the library of its plugin was installed.

        None if the plugin has its library, or offers no such thing, or cannot be imported without it.
        """
        plugin, _, item = name.partition(".")
        for found in self._table.found:
            if found.record.name == plugin and found.record.state is PluginState.LIBRARY_MISSING:
                specs = [spec for spec in loading.unregistered_specs(found) if isinstance(spec, kind)]
                wanted = [spec for spec in specs if getattr(spec, "name", None) == (item or plugin)]
                chosen = wanted or ([] if item else specs)
                return Offered(found.record, chosen[0]) if len(chosen) == 1 else None
        return None

    def load_all(self) -> None:
        """Load what can be loaded. What fails is recorded.

        Raises:
            PluginError: a plugin has a defect, and the environment says ``THUNDER_STRICT=1``.
        """
        for record in self.records:
            if record.state is PluginState.AVAILABLE:
                try:
                    self.load(record.name)
                except PluginError:
                    continue  # it is in the records
        error = defects(self.records) if is_strict() else None
        if error is not None:
            raise error

    def import_object(self, item: Offered[Any] | loading.Loadable) -> Any:
        """What is behind a specification. The operations that its plugin defines are added to the symbols before.

        A plugin of which something cannot be imported counts as failed in `records`; the rest of it stays usable.

        Raises:
            PluginError: it cannot be imported. ``__cause__`` is what the plugin raised.
            ValueError: no loaded plugin offers it.
        """
        return loading.import_object(self._table, item)

    def use(self, item: Offered[Any]) -> None:
        """Add the symbols and the interceptions of the plugin of a specification, without importing what is behind it.

        Raises:
            PluginError: they cannot be added.
        """
        loading.use(self._table, self.load(item.plugin.name))

    def find(self, kind: type[Spec], name: str) -> Offered[Spec]:
        """The executor, transform, front end or preset called ``name`` or ``plugin.name``.

        Args:
            kind: the class of its specification.

        Raises:
            PluginError: there is none of this kind, or it cannot be used.
        """
        return find(self, kind, name)

    def offered(self, kind: type[Spec]) -> tuple[Offered[Spec], ...]:
        """All specifications of one kind of all loaded plugins, the core's first, then by the plugin's name."""
        return tuple(Offered(loaded.plugin, spec) for loaded in self._table.loaded() for spec in loaded.of(kind))


class _Process:
    """What a process has one of."""

    lock = threading.Lock()
    host: Host | None = None


def host() -> Host:
    """The host of this process, created on first use."""
    with _Process.lock:
        if _Process.host is None:
            _Process.host = Host()
        return _Process.host


def reset_host() -> None:
    """Forget the host, so that the next one looks for plugins anew. Modules that were imported stay imported."""
    with _Process.lock:
        _Process.host = None
