"""A plugin of a project, and what it offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from thunder_core.plugins.distributions import normalized
from thunder_core.plugins.host import Host
from thunder_core.plugins.importing import imported
from thunder_core.plugins.loaded import WORDS
from thunder_core.plugins.registration import register
from thunder_core.plugins.states import PluginRecord, PluginState
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.package.project import Project

_USABLE: Final = (PluginState.AVAILABLE, PluginState.LOADED)


@dataclass(frozen=True)
class Plugin:
    """A plugin: its name, and where its object is, ``module:attribute``."""

    project: Project
    name: str
    target: str

    def specs(self) -> tuple[Any, ...]:
        """What its hooks return, whether its library is there or not.

        Raises:
            InvalidPlugin: they are not those of the manual.
            BaseException: whatever importing it, or a hook, raises.
        """
        return register(Host().manager, self.name, imported(self.target), of_core=False)

    def record(self) -> PluginRecord:
        """What its metadata says, as it is now. Raises Breach if it is not installed."""
        for record in Host().records:
            if record.name == self.name and normalized(record.distribution) == normalized(self.project.name):
                return record
        raise Breach("metadata", f"the plugin {self.name} is not installed: {self.project.install}")

    def why_not(self) -> str:
        """Why it cannot be used here, as that its library is absent; empty if it can."""
        record = self.record()
        return "" if record.state in _USABLE else record.why

    def require(self) -> None:
        """Raise NotApplicable where it cannot be used."""
        why = self.why_not()
        if why:
            raise NotApplicable(f"the plugin {self.name} cannot be used here: {why}")


@dataclass(frozen=True)
class Item:
    """Something that a plugin offers."""

    plugin: Plugin
    spec: Any

    @property
    def name(self) -> str:
        """What it is called; tables of symbols have no name but where they are."""
        name: str = getattr(self.spec, "name", "") or self.spec.load
        return name

    @property
    def title(self) -> str:
        """``executor my_kernels``."""
        return f"{WORDS[type(self.spec)]} {self.name}"
