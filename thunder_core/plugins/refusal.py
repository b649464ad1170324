"""Errors about plugins that were asked for and cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from thunder_core.errors import PluginError
from thunder_core.plugins.first_party import first_party_names, how_to_get
from thunder_core.plugins.nearest import suggestion
from thunder_core.plugins.states import PluginRecord, PluginState

_DEFECTS = (PluginState.FAILED, PluginState.NAME_CLASH, PluginState.API_MISMATCH, PluginState.VERSION_CONFLICT)
"""States that ``THUNDER_STRICT=1`` makes errors. That a library is absent, or a plugin blocked, is no defect."""


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
    broken = [record for record in records if record.state in _DEFECTS]
    if not broken:
        return None
    lines = "".join(f"\n  {record.title}: {record.why}" for record in broken)
    return PluginError(
        f"THUNDER_STRICT is set, and installed plugins have defects:{lines}",
        advice=tuple(dict.fromkeys(record.advice for record in broken)),
    )
