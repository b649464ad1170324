"""The executors of programs whose configuration names none, or has ``...`` among them: those of the preset for their
device.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from thunder.config.creation import Parts, create_parts
from thunder.config.document import default_documents, document, documents_of
from thunder.config.entry import LISTS, Entry
from thunder.config.problems import refuse
from thunder.config.resolve import ResolvedConfig, resolve
from thunder_core.errors import PluginError
from thunder_core.plugins.distributions import CORE_PLUGIN
from thunder_core.plugins.host import Host, host
from thunder_core.plugins.specs import Preset
from thunder_core.plugins.states import Offered

_Executors = tuple[Entry, ...] | None
_presets: Final[WeakKeyDictionary[Host, dict[tuple[str, _Executors], tuple[str, Parts] | None]]] = WeakKeyDictionary()
"""By type of device and executors, the preset and its parts: installed plugins do not change during a process."""


def preset_for(device: str, executors: _Executors = None) -> tuple[str, Parts] | None:
    """The preset for a type of device, and its parts; None if there is none.

    Args:
        executors: the executors of a configuration, one of them ``...``, the place of those of the preset. None for
            those of the preset alone.

    Raises:
        ConfigError, PluginError: the preset has a problem.
    """
    known, key = _presets.setdefault(host(), {}), (device, executors)
    if key not in known:
        known[key] = _created(device, executors)
    return known[key]


def _created(device: str, executors: _Executors) -> tuple[str, Parts] | None:
    found = resolved_for(device, executors)
    if found is None:
        return None
    name, preset = found
    # Transforms may act on a module before its device is known, so the device does not choose them.
    executors_only = {**dict.fromkeys(LISTS, ()), "executors": preset.parts["executors"]}
    return name, create_parts(replace(preset, parts=executors_only))


def resolved_for(device: str, executors: _Executors = None) -> tuple[str, ResolvedConfig] | None:
    """The preset for a type of device, and its configuration with these executors. As `preset_for` otherwise."""
    offered = _preset(device)
    if offered is None:
        return None
    documents = [*default_documents(), *documents_of(f"{offered.plugin.name}.{offered.spec.name}")]
    if executors is not None:
        documents.append(document({"executors": executors}))
    preset = resolve(documents)
    refuse(preset.problems)
    return offered.spec.name, preset


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
