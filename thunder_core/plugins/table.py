"""What a host knows about each installed plugin. Shared by threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from thunder_core.errors import PluginError
from thunder_core.plugins.discovery import Found, discover
from thunder_core.plugins.selection import CORE_PLUGIN
from thunder_core.plugins.specs import (
    Check,
    ExecutorSpec,
    FrontEndSpec,
    InterceptionsSpec,
    Preset,
    SymbolsSpec,
    TransformSpec,
)
from thunder_core.plugins.states import PluginRecord, PluginState, refusal, unknown_plugin

Spec = TypeVar("Spec")
WORDS: Final[dict[type[Any], str]] = {
    ExecutorSpec: "executor",
    TransformSpec: "transform",
    SymbolsSpec: "table of symbols",
    InterceptionsSpec: "table of interceptions",
    FrontEndSpec: "front end",
    Preset: "preset",
    Check: "check",
}
"""What each kind of specification is called in messages."""


def plural(kind: type[Any]) -> str:
    """``executors``, ``tables of symbols``."""
    noun, of, rest = WORDS[kind].partition(" of ")
    return f"{noun}s{of}{rest}"


@dataclass(frozen=True, slots=True)
class Offered(Generic[Spec]):
    """Something that a plugin offers.

    Attributes:
        plugin: who offers it, in its state at that time.
        spec: what is offered.
    """

    plugin: PluginRecord
    spec: Spec


@dataclass(frozen=True, slots=True)
class Loaded:
    """A plugin that is registered.

    Attributes:
        plugin: its record at that time.
        specs: everything that its hooks returned.
    """

    plugin: PluginRecord
    specs: tuple[Any, ...]

    def of(self, kind: type[Spec]) -> tuple[Spec, ...]:
        """The specifications of one kind."""
        return tuple(spec for spec in self.specs if isinstance(spec, kind))

    def summary(self) -> str:
        """What it offers, for messages: ``executors: a, b; transforms: c``."""
        kinds = [(plural(kind), [spec.name for spec in self.of(kind)]) for kind in WORDS]
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds if names) or "nothing"


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
