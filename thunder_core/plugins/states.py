"""What is known about an installed plugin."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class PluginState(enum.Enum):
    """Whether a plugin can be used. All but `FAILED` and `LOADED` are told from metadata, before any import."""

    AVAILABLE = "available"
    """It can be loaded as soon as somebody asks for it."""
    BLOCKED = "blocked"
    """The environment variable ``THUNDER_PLUGINS`` leaves it out."""
    LIBRARY_MISSING = "library missing"
    """A library of its extra ``lib`` is not installed."""
    VERSION_CONFLICT = "version conflict"
    """A library of its extra ``lib``, or Thunder, is installed in a version that it does not work with."""
    NAME_CLASH = "name clash"
    """Another distribution offers a plugin of the same name."""
    API_MISMATCH = "API mismatch"
    """It was written for another number of the plugin interface."""
    FAILED = "failed"
    """It could not be imported, or what it offers is not valid."""
    LOADED = "loaded"
    """Its specifications are registered."""


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plugin of one installed distribution.

    Attributes:
        name: of the entry point; what configurations call it.
        distribution: the name that pip knows it by.
        version: of the distribution; empty for a core that runs from a checkout without being installed.
        state: whether it can be used.
        why: why it cannot, one sentence; else empty.
        advice: the command that repairs that; else empty.
    """

    name: str
    distribution: str
    version: str
    state: PluginState
    why: str = ""
    advice: str = ""

    @property
    def title(self) -> str:
        """For messages: ``plugin 'nvfuser' (thunder-plugin-nvfuser 0.1.0)``."""
        return f"plugin {self.name!r} ({self.source})"

    @property
    def source(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}".rstrip()
