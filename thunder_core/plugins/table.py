"""What a host knows about each installed plugin. Shared by threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

from thunder_core.errors import PluginError
from thunder_core.plugins.discovery import Found, discover
from thunder_core.plugins.loaded import Loaded
from thunder_core.plugins.selection import CORE_PLUGIN
from thunder_core.plugins.states import PluginRecord, PluginState, refusal, unknown_plugin


class PluginTable:
    """Records of all plugins, and those of them that are loaded.

    Attributes:
        lock: held while a record changes. No plugin's module is imported under it: Python has locks for
            that, and threads that take both in different orders would wait for each other.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._found: list[Found] | None = None
        self._loaded: dict[str, Loaded] = {}
        self._causes: dict[str, BaseException] = {}

    @property
    def found(self) -> tuple[Found, ...]:
        """All of them, the core first. The first access looks for them; PluginError if ``THUNDER_PLUGINS`` is wrong."""
        with self.lock:
            if self._found is None:
                self._found = discover()
            return tuple(self._found)

    def loaded(self) -> Iterator[Loaded]:
        """The loaded ones, the core first, then by name."""
        with self.lock:
            names = dict.fromkeys(found.record.name for found in self.found)
            return iter([self._loaded[name] for name in names if name in self._loaded])

    def usable(self, name: str) -> Loaded | Found:
        """The plugin if it is loaded, else where it is.

        Raises:
            PluginError: it is not installed or cannot be used.
        """
        with self.lock:
            if name in self._loaded:
                return self._loaded[name]
            named = [found for found in self.found if found.record.name == name]
            if name == CORE_PLUGIN:
                del named[1:]
            if not named:
                raise unknown_plugin(name, [found.record for found in self.found])
            if named[0].record.state is not PluginState.AVAILABLE:
                raise refusal([found.record for found in named]) from self._causes.get(name)
            return named[0]

    def add(self, found: Found, specs: tuple[object, ...]) -> Loaded:
        """Note that the plugin offers ``specs`` and is loaded."""
        with self.lock:
            record = self._change(found, PluginState.LOADED, "", "")
            loaded = self._loaded[record.name] = Loaded(record, specs)
            return loaded

    def fail(self, found: Found, why: str, advice: str, cause: BaseException) -> PluginError:
        """Note that the plugin, or a part of it, cannot be used; the error to raise from ``cause``."""
        with self.lock:
            record = self._change(found, PluginState.FAILED, why, advice)
            self._causes[record.name] = cause
            return refusal([record])

    def _change(self, found: Found, state: PluginState, why: str, advice: str) -> PluginRecord:
        record = replace(found.record, state=state, why=why, advice=advice)
        name, distribution = record.name, record.distribution
        self._found = [
            replace(item, record=record)
            if (item.record.name, item.record.distribution) == (name, distribution)
            else item
            for item in self.found
        ]
        return record
