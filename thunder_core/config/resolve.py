"""From what the user gave to `Settings`.

What is given to ``jit`` directly overrides its ``config``. Without one, the environment variable ``THUNDER_CONFIG``
names it. The preset ``default`` is below everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from thunder_core.acquire.user_frames import warn_user
from thunder_core.config import torch_compile
from thunder_core.config.document import Document
from thunder_core.config.layers import Layer, default_layers, layer_of, layer_of_config, layers_of
from thunder_core.config.merge import merge
from thunder_core.config.model import ThunderConfig
from thunder_core.config.objects import problems_of, settings_from, without_effect
from thunder_core.config.parts import Parts, parts_of
from thunder_core.config.problems import Problem, in_order, refuse
from thunder_core.config.settings import Settings
from thunder_core.config.sources import document_of
from thunder_core.errors import ConfigError, ConfigWarning, ThunderError
from thunder_core.plugins.nearest import suggestion

VARIABLE: Final = "THUNDER_CONFIG"
"""The environment variable that names the configuration where none is given."""


def settings_of(
    config: Any = None,
    *,
    executors: Sequence[Any] | None = None,
    transforms: Sequence[Any] | None = None,
    **options: Any,
) -> Settings:
    """The settings for a configuration, and for what is given besides, which overrides it.

    Args:
        config: a path, the name of a preset, a mapping, or a `ThunderConfig`.
        executors, transforms: lists of names, ``{name: options}``, and objects.
        options: other fields of `ThunderConfig`.

    Raises:
        ConfigError: something is not accepted. The message has a line for each problem.
        PluginError: something cannot be imported or made.
        TransformError: transforms contradict each other.

    Warns:
        ConfigWarning: a pattern of an executor matches no operation.
    """
    parts = _parts(config, executors, transforms, options)
    settings = settings_from(parts)
    for problem in without_effect(parts):
        warn_user("\n".join([str(problem), *(f"  {item}" for item in problem.advice)]), ConfigWarning)
    return settings


def resolve_config(
    config: Any = None,
    *,
    executors: Sequence[Any] | None = None,
    transforms: Sequence[Any] | None = None,
    **options: Any,
) -> ThunderConfig:
    """The complete configuration: what it extends and all defaults are in it. Arguments and errors as `settings_of`."""
    return _parts(config, executors, transforms, options).config


def read_config(path: str | os.PathLike[str]) -> ThunderConfig:
    """What a file says, without what it extends.

    Raises:
        ConfigError: something in it is not accepted. Names and options of plugins are not looked at.
    """
    layer = layer_of(document_of(Path(path)))
    refuse(layer.problems)
    return layer.config


def check_config(config: Any) -> list[Problem]:
    """Everything that is wrong with a configuration. `thunder.jit` accepts it exactly if there is nothing, but for
    patterns that match no operation: it warns about these.

    Plugins that it names are loaded and its executors and transforms made, so that what fails then is found as well.
    """
    try:
        parts = _found([*default_layers(), *layers_of(config)])
        return in_order(parts.problems or problems_of(parts))
    except ThunderError as error:  # it is not there at all, or the environment is not valid
        return [Problem(None, None, "", error.problem, error.advice)]


def restored(config: ThunderConfig) -> Settings:
    """The settings that had this complete configuration, in another process perhaps."""
    parts = _found([layer_of_config(config)])
    refuse(parts.problems)
    return settings_from(parts)


def _parts(config: Any, executors: Any, transforms: Any, options: dict[str, Any]) -> Parts:
    given = {"executors": executors, "transforms": transforms}
    arguments = {**options, **{name: value for name, value in given.items() if value is not None}}
    parts = _found([*default_layers(), *_chosen(config), *([_arguments(arguments)] if arguments else [])])
    refuse(parts.problems)
    return parts


def _found(layers: list[Layer]) -> Parts:
    return parts_of(merge(layers))


def _chosen(config: Any) -> list[Layer]:
    """The layers of the configuration that is given, or that the environment names."""
    if config is not None:
        return layers_of(config)
    name = os.environ.get(VARIABLE)
    if not name:
        return []
    advice = (f"the environment variable {VARIABLE} asks for {name!r}",)
    try:
        layers = layers_of(name)
    except ConfigError as error:
        raise ConfigError(error.problem, advice=(*error.advice, *advice)) from error
    return [
        replace(layer, problems=tuple(replace(problem, advice=problem.advice + advice) for problem in layer.problems))
        for layer in layers
    ]


def _arguments(values: Mapping[str, Any]) -> Layer:
    """The layer of what was given to ``jit`` directly."""
    known = [name for name in ThunderConfig.model_fields if name != "extends"]
    unknown = [name for name in values if name not in known]
    layer = layer_of(Document({name: value for name, value in values.items() if name in known}))
    options = f"one of {', '.join(known)}"
    problems = [
        Problem(
            None, None, name, f"unknown option{suggestion(name, [*known, 'config'])}",
            (torch_compile.advice_for(name, values[name]) or options,),
        )
        for name in unknown
    ]  # fmt: skip
    return replace(layer, problems=(*problems, *layer.problems))
