"""Discover the installed plugins, and the state of each, from metadata alone.

The environment variable ``THUNDER_PLUGINS`` allows or blocks plugins by name. It has names separated by commas:
``nvfuser,cudnn`` allows these two and no other; ``-triton`` blocks one; ``core`` alone blocks all. Unset or empty, all
are allowed. The core itself cannot be blocked.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from thunder_core._version import __version__
from thunder_core.errors import PluginError, suggestion
from thunder_core.plugins.distributions import API_GROUP, CORE, CORE_PLUGIN, Installed, PluginDistribution
from thunder_core.plugins.hookspecs import API
from thunder_core.plugins.requirements import LIBRARY_EXTRA, Obstacle, unmet_requirement, upgrade
from thunder_core.plugins.states import PluginRecord, PluginState

VARIABLE: Final = "THUNDER_PLUGINS"


def discover() -> list[PluginRecord]:
    """The records of the core and of the plugins, by name. Two of one name are both listed. Nothing is imported.

    Raises:
        PluginError: the environment variable ``THUNDER_PLUGINS`` is not valid.
    """
    installed = Installed()
    offers: dict[str, list[PluginDistribution]] = defaultdict(list)
    for distribution in installed.with_plugins():
        for name in distribution.plugins:
            offers[name].append(distribution)
    selected = selection({CORE_PLUGIN, *offers})
    version = installed.version(CORE) or __version__
    records = [PluginRecord(CORE_PLUGIN, CORE, version, PluginState.AVAILABLE)]
    for name in sorted(offers):
        for distribution in offers[name]:
            obstacle = _obstacle(name, distribution, offers[name], selected, installed)
            state, why, advice = obstacle or (PluginState.AVAILABLE, *_undeclared(name, distribution))
            target, has_library = distribution.plugins[name], LIBRARY_EXTRA in distribution.extras
            records.append(
                PluginRecord(name, distribution.name, distribution.version, state, why, advice, target, has_library)
            )
    return records


def _obstacle(
    name: str,
    distribution: PluginDistribution,
    offering: list[PluginDistribution],
    selected: Selection,
    installed: Installed,
) -> Obstacle | None:
    """The first reason why a plugin cannot be used; None if it can."""
    clash = _clash(name, distribution, offering)
    blocked = "" if name == CORE_PLUGIN else selected.why_blocked(name)
    if blocked:
        return Obstacle(PluginState.BLOCKED, blocked, f"unset {VARIABLE}")
    return clash or _api_mismatch(name, distribution) or unmet_requirement(distribution, installed)


def _clash(name: str, distribution: PluginDistribution, offering: list[PluginDistribution]) -> Obstacle | None:
    remove = f"pip uninstall {distribution.name}"
    if name == CORE_PLUGIN:
        why = f"the name belongs to {CORE}, and {distribution.name} {distribution.version} offers a plugin of this name"
        return Obstacle(PluginState.NAME_CLASH, why, remove)
    if len(offering) == 1:
        return None
    names = " and ".join(f"{other.name} {other.version}" for other in offering)
    return Obstacle(PluginState.NAME_CLASH, f"{names} offer plugins of this name", remove)


def _api_mismatch(name: str, distribution: PluginDistribution) -> Obstacle | None:
    declared = distribution.interfaces.get(name, "1")
    if declared == str(API):
        return None
    number = int(declared) if declared.isdecimal() else None
    what = f"number {number}" if number is not None else f"{declared!r}, which is not a number,"
    why = f"it was written for {what} of the plugin interface, but this Thunder has number {API}"
    newer = number is not None and number > API
    return Obstacle(PluginState.API_MISMATCH, why, upgrade(CORE if newer else distribution.name))


def _undeclared(name: str, distribution: PluginDistribution) -> tuple[str, str]:
    """For a plugin without the number of an interface: what is wrong, and the advice for its author."""
    if name in distribution.interfaces:
        return "", ""
    entry = f'[project.entry-points."{API_GROUP}"] {name} = "{API}"'
    why = "it does not declare the plugin interface that it was written for, so a change of it will not be noticed"
    return why, f"its author adds {entry} to pyproject.toml"


@dataclass(frozen=True, slots=True)
class Selection:
    """The plugins that ``THUNDER_PLUGINS`` allows.

    Attributes:
        text: the value of the variable.
        only: names of the allowed plugins; empty: all.
        blocked: names of blocked plugins.
    """

    text: str
    only: frozenset[str]
    blocked: frozenset[str]

    def why_blocked(self, name: str) -> str:
        """Why a plugin is blocked, as a sentence; empty if it is allowed."""
        if name in self.blocked:
            return f"{VARIABLE}={self.text} blocks it"
        if self.only and name not in self.only:
            return f"{VARIABLE}={self.text} does not name it"
        return ""


def selection(installed: Iterable[str]) -> Selection:
    """The selection of the environment.

    Args:
        installed: names of the installed plugins, ``core`` among them.

    Raises:
        PluginError: the variable names a plugin that is not installed, or blocks the core.
    """
    text = os.environ.get(VARIABLE, "").strip()
    items = [item.strip() for item in text.split(",") if item.strip()]
    blocked = frozenset(item[1:].strip() for item in items if item.startswith("-"))
    only = frozenset(item for item in items if not item.startswith("-"))
    names = sorted(installed)
    for name in sorted((only | blocked) - set(names)):
        raise PluginError(
            f"{VARIABLE}={text} names {name!r}, and no plugin of this name is installed{suggestion(name, names)}",
            advice=(f"installed are: {', '.join(names)}", f"unset {VARIABLE}"),
        )
    if CORE_PLUGIN in blocked:
        raise PluginError(
            f"{VARIABLE}={text} blocks {CORE_PLUGIN!r}, without which nothing runs",
            advice=(f"leave it out; {VARIABLE}={CORE_PLUGIN} keeps everything else out",),
        )
    return Selection(text, only, blocked)
