"""The executors of programs whose configuration names none: those of the preset for their device."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from thunder.config.creation import Parts, create_parts
from thunder.config.document import default_documents, documents_of
from thunder.config.entry import LISTS
from thunder.config.problems import refuse
from thunder.config.resolve import resolve
from thunder_core.errors import PluginError
from thunder_core.plugins.distributions import CORE_PLUGIN
from thunder_core.plugins.host import Host, host
from thunder_core.plugins.specs import Preset
from thunder_core.plugins.states import Offered

_presets: Final[WeakKeyDictionary[Host, dict[str, tuple[str, Parts] | None]]] = WeakKeyDictionary()
"""By type of device, the preset and its parts: installed plugins do not change during a process."""


def preset_for(device: str) -> tuple[str, Parts] | None:
    """The preset for a type of device, and its parts; None if there is none.

    Raises:
        ConfigError, PluginError: the preset has a problem.
    """
    known = _presets.setdefault(host(), {})
    if device not in known:
        known[device] = _created(device)
    return known[device]


def _created(device: str) -> tuple[str, Parts] | None:
    offered = _preset(device)
    if offered is None:
        return None
    preset = resolve([*default_documents(), *documents_of(f"{offered.plugin.name}.{offered.spec.name}")])
    refuse(preset.problems)
    # Transforms may act on a module before its device is known, so the device does not choose them.
    executors_only = {**dict.fromkeys(LISTS, ()), "executors": preset.parts["executors"]}
    return offered.spec.name, create_parts(replace(preset, parts=executors_only))


def _preset(device: str) -> Offered[Preset] | None:
    """The preset for a type of device: the core's, or else that of a plugin."""
    plugins = host()
    core = plugins.load(CORE_PLUGIN)
    presets = [Offered(core, spec) for spec in core.of(Preset) if spec.device == device]
    if not presets:
        plugins.load_all()
        presets = [offered for offered in plugins.offered(Preset) if offered.spec.device == device]
    if len(presets) > 1:
        names = " and ".join(f"{offered.plugin.name}.{offered.spec.name}" for offered in presets)
        raise PluginError(
            f"the presets {names} are both for the device {device}",
            advice=("name one of them with `config=`, or block a plugin with THUNDER_PLUGINS",),
        )
    return presets[0] if presets else None
