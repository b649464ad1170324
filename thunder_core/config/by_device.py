"""The executors of programs whose configuration names none: those of the preset for their device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

from thunder_core.config.document import default_documents, documents_of
from thunder_core.config.entry import LISTS
from thunder_core.config.problems import refuse
from thunder_core.config.resolve import resolve
from thunder_core.config.settings import Settings, settings_from
from thunder_core.errors import PluginError
from thunder_core.plugins.distributions import CORE_PLUGIN
from thunder_core.plugins.host import Host, host
from thunder_core.plugins.specs import Preset
from thunder_core.plugins.states import Offered

_settings: Final[WeakKeyDictionary[Host, dict[str, tuple[str, Settings] | None]]] = WeakKeyDictionary()
"""By type of device, the preset and its settings: installed plugins do not change during a process."""


@dataclass(frozen=True)
class PresetChoice:
    """The executors of a program for which none were named.

    Attributes:
        preset: the name of the preset.
        device: the type of device that it was chosen for.
        executors: names of those of its executors that can be used here, in order.
        left_out: the others, with the reason.
    """

    preset: str
    device: str
    executors: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]

    def lines(self) -> list[str]:
        """The report as text."""
        names = ", ".join(self.executors) or "PyTorch alone"
        chosen = f"executors of the preset {self.preset!r}, chosen for the device {self.device}: {names}"
        return [chosen, *(f"  without {name}, because {reason}" for name, reason in self.left_out)]


def with_executors_for(device: str, settings: Settings) -> tuple[Settings, PresetChoice | None]:
    """The settings with the executors for this type of device, and the choice, for the report.

    The same settings, and None, if the configuration names executors, or no preset is for this type of device.

    Raises:
        ConfigError, PluginError: the preset has a problem.
    """
    if settings.config.executors is not None:
        return settings, None
    known = _settings.setdefault(host(), {})
    if device not in known:
        known[device] = _preset_settings(device)
    choice = known[device]
    if choice is None:
        return settings, None
    preset, chosen = choice
    names = tuple([executor.name for executor in chosen.executors])
    with_executors = replace(settings, executors=chosen.executors, left_out=(*settings.left_out, *chosen.left_out))
    return with_executors, PresetChoice(preset, device, names, chosen.left_out)


def _preset_settings(device: str) -> tuple[str, Settings] | None:
    offered = _preset(device)
    if offered is None:
        return None
    name = f"{offered.plugin.name}.{offered.spec.name}"
    preset = resolve([*default_documents(), *documents_of(name)])
    refuse(preset.problems)
    # Transforms may act on a module before its device is known, so the device does not choose them.
    executors_only = {**dict.fromkeys(LISTS, ()), "executors": preset.parts["executors"]}
    return offered.spec.name, settings_from(replace(preset, parts=executors_only))


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
