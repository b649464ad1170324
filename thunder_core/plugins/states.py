"""Records of installed plugins with their states, and the errors for plugins that cannot be used."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from thunder_core.errors import PluginError, suggestion
from thunder_core.plugins.first_party import first_party_names, how_to_get
from thunder_core.plugins.specs import KINDS, Specification, plural

Spec = TypeVar("Spec", bound=Specification)


class PluginState(enum.Enum):
    """Whether a plugin can be used. All but `FAILED` and `LOADED` come from metadata, before any import."""

    AVAILABLE = "available"
    """It is loaded when a configuration names it."""
    BLOCKED = "blocked"
    """The environment variable ``THUNDER_PLUGINS`` excludes it."""
    LIBRARY_MISSING = "library missing"
    """A library of its extra ``lib`` is not installed."""
    VERSION_CONFLICT = "version conflict"
    """The installed version of Thunder, or of a library of its extra ``lib``, is not supported."""
    NAME_CLASH = "name clash"
    """Another distribution has a plugin of the same name."""
    API_MISMATCH = "API mismatch"
    """It was written for another version of the plugin interface."""
    FAILED = "failed"
    """It could not be imported, or a specification of it is not valid."""
    LOADED = "loaded"
    """Its specifications are registered."""


DEFECTS = (PluginState.FAILED, PluginState.NAME_CLASH, PluginState.API_MISMATCH, PluginState.VERSION_CONFLICT)
"""States that ``THUNDER_STRICT=1`` makes errors. An absent library and a blocked plugin are not defects."""


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One plugin of one installed distribution.

    Attributes:
        name: the name of its entry point, which configurations use.
        distribution: the name of the distribution.
        version: the version of the distribution; empty for a core that runs from a checkout without being installed.
        state: whether it can be used.
        why: why it cannot, or what its author has to correct, one sentence; else empty.
        advice: the command, or the correction; else empty.
        target: the value of its entry point: ``module:attribute`` or ``module``.
        has_library: whether its distribution has the extra ``lib``.
        specs: the specifications that its hooks returned; empty before it is loaded.
        cause: the exception because of which it failed.
    """

    name: str
    distribution: str
    version: str
    state: PluginState
    why: str = ""
    advice: str = ""
    target: str = ""
    has_library: bool = False
    specs: tuple[Any, ...] = field(default=(), repr=False)
    cause: BaseException | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """For messages: ``plugin 'nvfuser' (thunder-plugin-nvfuser 0.1.0)``."""
        return f"plugin {self.name!r} ({self.source})"

    @property
    def source(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}".rstrip()

    def of(self, kind: type[Spec]) -> tuple[Spec, ...]:
        """Its specifications of one kind."""
        return tuple(spec for spec in self.specs if isinstance(spec, kind))

    def summary(self) -> str:
        """Its specifications, for messages: ``executors: a, b; transforms: c``."""
        kinds = [(plural(kind), [spec.name for spec in self.of(kind)]) for kind in KINDS.values()]
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds if names) or "nothing"


@dataclass(frozen=True, slots=True)
class Offered(Generic[Spec]):
    """A specification with the plugin that it belongs to."""

    plugin: PluginRecord
    spec: Spec


def refusal(records: Sequence[PluginRecord]) -> PluginError:
    """The error for a plugin that was named: one record, or those of all that share the name."""
    first = records[0]
    advice = tuple(dict.fromkeys(record.advice for record in records if record.advice))
    if first.state is PluginState.NAME_CLASH:
        return PluginError(
            f"the plugin {first.name!r} cannot be used: {first.why}",
            advice=(advice[0], *(f"or {command}" for command in advice[1:])),
        )
    return PluginError(f"the {first.title} cannot be used: {first.why}", advice=advice)


def unknown_plugin(name: str, records: Sequence[PluginRecord]) -> PluginError:
    """The error for a plugin that is not installed."""
    names = list(dict.fromkeys(record.name for record in records))
    installed = f"installed are: {', '.join(names)}"
    if name in first_party_names():
        return PluginError(f"the plugin {name!r} is not installed", advice=(how_to_get(name), installed))
    return PluginError(
        f"there is no plugin {name!r}{suggestion(name, dict.fromkeys([*names, *first_party_names()]))}",
        advice=(installed, f"pip install the distribution that offers {name!r}"),
    )


def defects(records: Sequence[PluginRecord]) -> PluginError | None:
    """The error about all plugins that have a defect, named or not; None if there are none."""
    broken = [record for record in records if record.state in DEFECTS]
    if not broken:
        return None
    lines = "".join(f"\n  {record.title}: {record.why}" for record in broken)
    return PluginError(
        f"THUNDER_STRICT is set, and installed plugins have defects:{lines}",
        advice=tuple(dict.fromkeys(record.advice for record in broken)),
    )
