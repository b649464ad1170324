"""The executors to choose among, and those of a configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from thunder.config import settings_of
from thunder.config.by_device import resolved_for
from thunder_core.errors import OptionError, PluginError, ThunderError
from thunder_core.executors.reference import REFERENCE
from thunder_core.plugins.host import host
from thunder_core.plugins.lookup import find_without_library
from thunder_core.plugins.specs import ExecutorSpec
from thunder_core.plugins.states import PluginState
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_plugin_tuning.executor_lists import Executors, slim


def executors_of(config: Any, entry: CacheEntry) -> Executors:
    """The executors that a program was compiled with, as entries of a configuration; the reference executor is last.

    Args:
        config: the configuration.
        entry: the compiled program.

    Raises:
        OptionError: one of them is a Python object.
    """
    listed = settings_of(config).config.executors or ()
    if entry.preset is not None:
        found = resolved_for(entry.preset.device, settings_of(config).config.executors)
        listed = listed if found is None else found[1].config.executors or ()
    given = [listing.name for listing in listed if listing.given is not None]
    if given:
        raise OptionError(
            f"the executor {given[0]!r} is a Python object, which a configuration file cannot name",
            advice=("offer it from a plugin, and name it",),
        )
    used = {executor.name for executor in entry.executors}
    return tuple([slim(listing) for listing in listed if listing.item in used])


def usable_executors(config: Any, names: Sequence[str] | None = None) -> tuple[list[str], Mapping[str, str]]:
    """The installed executors that can be used here, and the reasons why others cannot.

    Args:
        config: the configuration that they are used with.
        names: consider these only.

    Raises:
        OptionError, PluginError: one of ``names`` cannot be used.
        PluginError: no executor can be used.
    """
    usable: list[str] = []
    left_out: dict[str, str] = {}
    for name in _installed(left_out) if names is None else names:
        try:
            settings_of(config, executors=[name])
        except ThunderError as error:
            if names is not None:
                raise
            left_out[name] = error.problem
        else:
            usable.append(name)
    if not usable:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise PluginError(
            "no executor besides PyTorch can be used here, so there is nothing to choose"
            + (f" ({why})" if why else ""),
            advice=("install one, for example the plugin 'inductor'; `thunder plugins` lists what is installed",),
        )
    return _fusing_first(config, usable), left_out


def _installed(left_out: dict[str, str]) -> list[str]:
    """The names of the executors of plugins that can be loaded; the reasons for other plugins are added."""
    plugins = host()
    plugins.load_all()
    for record in plugins.records:
        if record.state is PluginState.LIBRARY_MISSING and find_without_library(ExecutorSpec, record.name):
            left_out[record.name] = record.why
    offered = [item for item in plugins.offered(ExecutorSpec) if item.spec.name != REFERENCE.name]
    counts = Counter(item.spec.name for item in offered)
    return [
        item.spec.name if counts[item.spec.name] == 1 else f"{item.plugin.name}.{item.spec.name}" for item in offered
    ]


def _fusing_first(config: Any, names: Sequence[str]) -> list[str]:
    """Those that fuse come first: each of the others is then tried in front of them, as presets have it."""
    fuses = {name: settings_of(config, executors=[name]).executors[0].fuses for name in names}
    return sorted(names, key=lambda name: not fuses[name])
