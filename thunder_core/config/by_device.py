"""Executors where the configuration names none: those of the preset for the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from thunder_core.config.document import default_documents, documents_of
from thunder_core.config.entry import of_core
from thunder_core.config.objects import settings_from
from thunder_core.config.problems import refuse
from thunder_core.config.resolved import resolved
from thunder_core.config.settings import Settings
from thunder_core.errors import PluginError
from thunder_core.plugins.host import Host, host
from thunder_core.plugins.specs import Preset
from thunder_core.plugins.table import Offered

_FOUND: Final[WeakKeyDictionary[Host, dict[str, tuple[str, Settings] | None]]] = WeakKeyDictionary()
"""Executors by type of device: plugins do not change while a process runs."""


def with_executors_for(device: str, settings: Settings) -> tuple[Settings, str]:
    """The settings with the executors for this type of device, and the name of the preset that has them.

    The settings as they are, and an empty name, where the configuration names executors, or no preset is for such a
    device.

    Raises:
        ConfigError, PluginError: something is wrong with the preset.
    """
    if settings.config.executors is not None:
        return settings, ""
    known = _FOUND.setdefault(host(), {})
    if device not in known:
        known[device] = _find(device)
    found = known[device]
    if found is None:
        return settings, ""
    name, chosen = found
    return replace(settings, executors=chosen.executors, left_out=(*settings.left_out, *chosen.left_out)), name


def _find(device: str) -> tuple[str, Settings] | None:
    offered = _preset(device)
    if offered is None:
        return None
    name = f"{offered.plugin.name}.{offered.spec.name}"
    preset = resolved([*default_documents(), *documents_of(name)])
    refuse(preset.problems)
    # Transforms may act on a module before its device is known, so they are not chosen by it.
    return offered.spec.name, settings_from(replace(preset, transforms=()))


def _preset(device: str) -> Offered[Preset] | None:
    """The preset for a type of device: the core's, or else that of a plugin."""
    for own in of_core(Preset):
        if own.spec.device == device:
            return own
    plugins = host()
    plugins.load_all()
    found = [offered for offered in plugins.offered(Preset) if offered.spec.device == device]
    if len(found) > 1:
        names = " and ".join(f"{offered.plugin.name}.{offered.spec.name}" for offered in found)
        raise PluginError(
            f"the presets {names} are both for the device {device}",
            advice=("name one of them with `config=`, or block a plugin with THUNDER_PLUGINS",),
        )
    return found[0] if found else None
