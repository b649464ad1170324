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

from thunder_core.config.document import (
    Document,
    default_documents,
    document,
    document_of,
    document_of_config,
    documents_of,
)
from thunder_core.config.model import ThunderConfig
from thunder_core.config.objects import problems_of, settings_from, without_effect
from thunder_core.config.problems import Problem, in_order, refuse
from thunder_core.config.resolved import Resolved, resolved
from thunder_core.config.settings import Settings
from thunder_core.errors import ConfigError, ConfigWarning, ThunderError
from thunder_core.plugins.nearest import suggestion
from thunder_core.tracing.user_frames import warn_user

_ADVICE = {
    "mode": "`mode` is torch.compile's; name who runs operations, and passes: executors=[...], transforms=[...]; "
    "`thunder plugins` lists them",
    "fullgraph": "`fullgraph` is torch.compile's; leave it out: what thunder.jit compiles is always one graph",
    "options": "`options` is torch.compile's; options belong to the executor: executors=[{name: {option: value}}]",
}
_EAGER_BACKENDS = ("eager", "aot_eager")


def advice_for(name: str, value: Any) -> str | None:
    """What to write instead of the argument ``name=value`` of `torch.compile`; None if it has no such argument."""
    if name != "backend":
        return _ADVICE.get(name)
    if not isinstance(value, str):
        return "`backend` is torch.compile's; an executor that fuses takes parts of a program: executors=[...]"
    chosen = "[]" if value in _EAGER_BACKENDS else f'["{value}"]'
    return f"`backend` is torch.compile's; write executors={chosen}"


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
        PluginError: something cannot be imported or created.
        TransformError: transforms contradict each other.

    Warns:
        ConfigWarning: a pattern of an executor matches no operation.
    """
    asked = _resolved(config, executors, transforms, options)
    settings = settings_from(asked)
    for problem in without_effect(asked):
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
    return _resolved(config, executors, transforms, options).config


def read_config(path: str | os.PathLike[str]) -> ThunderConfig:
    """What a file says, without what it extends.

    Raises:
        ConfigError: something in it is not accepted. Names and options of plugins are not looked at.
    """
    read = document_of(Path(path))
    refuse(read.problems)
    return read.config


def check_config(config: Any) -> list[Problem]:
    """Everything that is wrong with a configuration. `thunder.jit` accepts it exactly if there is nothing, but for
    patterns that match no operation: it warns about these.

    Plugins that it names are loaded and its executors and transforms created, so what fails then is reported too.
    """
    try:
        asked = resolved([*default_documents(), *documents_of(config)])
        return in_order(asked.problems or problems_of(asked))
    except ThunderError as error:  # it is not there at all, or the environment is not valid
        return [Problem(None, None, "", error.problem, error.advice)]


def restored(config: ThunderConfig) -> Settings:
    """The settings that had this complete configuration, in another process perhaps."""
    asked = resolved([document_of_config(config)])
    refuse(asked.problems)
    return settings_from(asked)


def _resolved(config: Any, executors: Any, transforms: Any, options: dict[str, Any]) -> Resolved:
    given = {"executors": executors, "transforms": transforms}
    arguments = {**options, **{name: value for name, value in given.items() if value is not None}}
    asked = resolved([*default_documents(), *_chosen(config), *([_arguments(arguments)] if arguments else [])])
    refuse(asked.problems)
    return asked


def _chosen(config: Any) -> list[Document]:
    """The documents of the configuration that is given, or that the environment names."""
    if config is not None:
        return documents_of(config)
    name = os.environ.get(VARIABLE)
    if not name:
        return []
    advice = (f"the environment variable {VARIABLE} asks for {name!r}",)
    try:
        documents = documents_of(name)
    except ConfigError as error:
        raise ConfigError(error.problem, advice=(*error.advice, *advice)) from error
    return [
        each.with_problems(replace(problem, advice=problem.advice + advice) for problem in each.problems)
        for each in documents
    ]


def _arguments(values: Mapping[str, Any]) -> Document:
    """What was given to ``jit`` directly."""
    known = [name for name in ThunderConfig.model_fields if name != "extends"]
    unknown = [name for name in values if name not in known]
    given = document({name: value for name, value in values.items() if name in known})
    options = f"one of {', '.join(known)}"
    problems = [
        Problem(
            None, None, name, f"unknown option{suggestion(name, [*known, 'config'])}",
            (advice_for(name, values[name]) or options,),
        )
        for name in unknown
    ]  # fmt: skip
    return given.with_problems([*problems, *given.problems])
