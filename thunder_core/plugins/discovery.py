"""Which plugins are installed and which of them can be used, from metadata alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from thunder_core._version import __version__
from thunder_core.plugins.distributions import CORE, Installed, PluginDistribution
from thunder_core.plugins.hookspecs import API
from thunder_core.plugins.requirements import LIBRARY_EXTRA, Finding, unmet_requirement, upgrade
from thunder_core.plugins.selection import CORE_PLUGIN, VARIABLE, Selection, selection
from thunder_core.plugins.states import PluginRecord, PluginState


@dataclass(frozen=True, slots=True)
class Found:
    """A plugin.

    Attributes:
        record: what is known about it.
        target: where its object is: ``module:attribute``.
        has_library: whether its distribution has the extra ``lib``.
    """

    record: PluginRecord
    target: str
    has_library: bool = False


def discover() -> list[Found]:
    """The core, then the plugins by name. Two of one name are both listed, as a clash. Nothing is imported.

    Raises:
        PluginError: the environment variable ``THUNDER_PLUGINS`` is not valid.
    """
    installed = Installed()
    offers: dict[str, list[PluginDistribution]] = defaultdict(list)
    for distribution in installed.with_plugins():
        for name in distribution.plugins:
            offers[name].append(distribution)
    selected = selection({CORE_PLUGIN, *offers})
    core = PluginRecord(CORE_PLUGIN, CORE, installed.version(CORE) or __version__, PluginState.AVAILABLE)
    found = [Found(core, "thunder_core.plugins.builtin")]
    for name in sorted(offers):
        for distribution in offers[name]:
            finding = _finding(name, distribution, offers[name], selected, installed)
            record = PluginRecord(
                name,
                distribution.name,
                distribution.version,
                finding.state if finding else PluginState.AVAILABLE,
                finding.why if finding else "",
                finding.advice if finding else "",
            )
            found.append(Found(record, distribution.plugins[name], LIBRARY_EXTRA in distribution.extras))
    return found


def _finding(
    name: str,
    distribution: PluginDistribution,
    offering: list[PluginDistribution],
    selected: Selection,
    installed: Installed,
) -> Finding | None:
    """Why a plugin cannot be used; the first reason of those that hold."""
    clash = _clash(name, distribution, offering)
    blocked = "" if name == CORE_PLUGIN else selected.why_blocked(name)
    if blocked:
        return Finding(PluginState.BLOCKED, blocked, f"unset {VARIABLE}")
    return clash or _api_mismatch(name, distribution) or unmet_requirement(distribution, installed)


def _clash(name: str, distribution: PluginDistribution, offering: list[PluginDistribution]) -> Finding | None:
    remove = f"pip uninstall {distribution.name}"
    if name == CORE_PLUGIN:
        why = f"the name belongs to {CORE}, and {distribution.name} {distribution.version} offers a plugin called so"
        return Finding(PluginState.NAME_CLASH, why, remove)
    if len(offering) == 1:
        return None
    names = " and ".join(f"{other.name} {other.version}" for other in offering)
    return Finding(PluginState.NAME_CLASH, f"{names} offer plugins of this name", remove)


def _api_mismatch(name: str, distribution: PluginDistribution) -> Finding | None:
    declared = distribution.interfaces.get(name, "1")
    if declared == str(API):
        return None
    number = int(declared) if declared.isdecimal() else None
    what = f"number {number}" if number is not None else f"{declared!r}, which is no number,"
    why = f"it was written for {what} of the plugin interface, and this Thunder has number {API}"
    newer = number is not None and number > API
    return Finding(PluginState.API_MISMATCH, why, upgrade(CORE if newer else distribution.name))
