"""The settings of a configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from thunder.config.by_device import preset_for
from thunder.config.creation import create_parts
from thunder.config.document import document_of_config
from thunder.config.entry import EXTENDED
from thunder.config.model import ThunderConfig
from thunder.config.problems import refuse
from thunder.config.resolve import ResolvedConfig, resolve
from thunder_core.executors.executor import Executor
from thunder_core.settings import PresetChoice, Settings


@dataclass(frozen=True, kw_only=True)
class ConfiguredSettings(Settings):
    """The settings of a configuration. They are pickled as it, and its names are resolved again by unpickling.

    Attributes:
        config: the complete configuration, with presets and defaults.
    """

    config: ThunderConfig

    @property
    def executors_by_device(self) -> bool:
        return self.config.executors is None or EXTENDED in self.config.executors

    def for_device(self, device: str) -> tuple[Settings, PresetChoice | None]:
        """As `Settings.for_device`.

        Raises:
            ConfigError, PluginError: the preset for the device has a problem.
        """
        found = preset_for(device, self.config.executors) if self.executors_by_device else None
        if found is None:
            return self, None
        preset, parts = found
        named = tuple([executor.name for executor in self.executors])
        names = tuple([executor.name for executor in parts.executors if executor.name not in named])
        left_out = tuple(dict.fromkeys([*self.left_out, *parts.left_out]))
        settings = replace(self, executors=timed(parts.executors, self.config), left_out=left_out)
        return settings, PresetChoice(preset, device, names, parts.left_out, named)

    def __reduce__(self) -> tuple[Callable[[ThunderConfig], Settings], tuple[ThunderConfig]]:
        return settings_from_config, (self.config,)


def timed(executors: tuple[Executor, ...], config: ThunderConfig) -> tuple[Executor, ...]:
    """The executors, those that ``compile="behind"`` asks for where the configuration sets it.

    With ``THUNDER_DETERMINISTIC=1`` they do not: results would depend on when another process is done.
    """
    if config.compile == "ahead" or os.environ.get("THUNDER_DETERMINISTIC", "") not in ("", "0"):
        return executors
    return tuple([executor.compiling_behind() for executor in executors])


def settings_from_config(config: ThunderConfig) -> ConfiguredSettings:
    """The settings for a complete configuration, which another process may have written. Raises as `settings_from`."""
    resolved = resolve([document_of_config(config)])
    refuse(resolved.problems)
    return settings_from(resolved)


def settings_from(resolved: ResolvedConfig) -> ConfiguredSettings:
    """Import and create the parts of a configuration that has no problems. Raises as `create_parts`."""
    config, parts = resolved.config, create_parts(resolved)
    assert parts.front_end is not None, "without a list of problems the first one is raised"
    recompute = config.recompute
    return ConfiguredSettings(
        config=config,
        front_end=parts.front_end,
        executors=timed(parts.executors, config),
        transforms=parts.transforms,
        wrapper_classes=parts.wrapper_classes,
        cache=config.cache,
        dynamic=config.dynamic,
        sharp_edges=config.sharp_edges,
        recompute=recompute if isinstance(recompute, str) else recompute.budget,
        memory=config.memory,
        allow_recompiles=config.allow_recompiles,
        recompile_warning=config.recompile_warning,
        recompile_limit=config.recompile_limit,
        outcome_limit=config.outcome_limit,
        left_out=parts.left_out,
        advice=parts.advice,
    )
