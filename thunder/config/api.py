"""The functions that users call: from a configuration and the arguments of `thunder.jit` to settings, or to YAML.

Arguments override ``config``. If ``config`` is None, the environment variable ``THUNDER_CONFIG`` names it. The preset
``default`` is below everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from thunder.config.creation import create_parts
from thunder.config.declared_sizes import DECLARE_IN_PYTHON, DeclaredSizes
from thunder.config.document import Document, default_documents, document, document_of, documents_of
from thunder.config.entry import LISTS
from thunder.config.model import ThunderConfig
from thunder.config.operation_patterns import unmatched_patterns
from thunder.config.problems import Problem, in_order, refuse
from thunder.config.resolve import ResolvedConfig, resolve
from thunder.config.settings import ConfiguredSettings, settings_from
from thunder.config.yaml_text import write_text
from thunder_core.errors import ConfigError, ConfigWarning, ThunderError, suggestion
from thunder_core.tracing.frames import warn_user

_ADVICE = {
    "mode": "`mode` is torch.compile's; name executors and transforms: executors=[...], transforms=[...]; "
    "`thunder plugins` lists them",
    "fullgraph": "`fullgraph` is torch.compile's; leave it out: thunder.jit always compiles one graph",
    "options": "`options` is torch.compile's; options belong to the executor: executors=[{name: {option: value}}]",
}
_EAGER_BACKENDS = ("eager", "aot_eager")


def _advice_for(name: str, value: Any) -> str | None:
    """The replacement for the argument ``name=value`` of `torch.compile`; None if it has no such argument."""
    if name != "backend":
        return _ADVICE.get(name)
    if not isinstance(value, str):
        return "`backend` is torch.compile's; an executor that fuses takes parts of a program: executors=[...]"
    chosen = "[]" if value in _EAGER_BACKENDS else f'["{value}"]'
    return f"`backend` is torch.compile's; write executors={chosen}"


VARIABLE: Final = "THUNDER_CONFIG"
"""The environment variable with the default of ``config``."""


def settings_of(
    config: Any = None,
    *,
    executors: Sequence[Any] | None = None,
    transforms: Sequence[Any] | None = None,
    **options: Any,
) -> ConfiguredSettings:
    """The settings for a configuration and arguments that override it.

    Args:
        config: a path, the name of a preset, a mapping, or a `ThunderConfig`.
        executors, transforms: lists of names, ``{name: options}``, and objects.
        options: other fields of `ThunderConfig`.

    Raises:
        ConfigError: the configuration has problems. The message has a line for each.
        PluginError: an executor, a transform or another part cannot be imported or created.
        TransformError: transforms contradict each other.

    Warns:
        ConfigWarning: a pattern of an executor matches no operation.
    """
    resolved = _resolved(config, executors, transforms, options)
    settings = settings_from(resolved)
    for problem in unmatched_patterns(resolved, settings.executors):
        warn_user("\n".join([str(problem), *(f"  {item}" for item in problem.advice)]), ConfigWarning)
    return settings


def resolve_config(
    config: Any = None,
    *,
    executors: Sequence[Any] | None = None,
    transforms: Sequence[Any] | None = None,
    **options: Any,
) -> ThunderConfig:
    """The complete configuration, with presets and all defaults. Arguments and errors as `settings_of`."""
    return _resolved(config, executors, transforms, options).config


def read_config(path: str | os.PathLike[str]) -> ThunderConfig:
    """The options in a file, without those of the configurations that it extends.

    Raises:
        ConfigError: the file has problems. Names and options of plugins are not checked.
    """
    content = document_of(Path(path))
    refuse(content.problems)
    return content.config


def to_yaml(config: ThunderConfig) -> str:
    """The configuration as YAML; `read_config` reads an equal one.

    Raises:
        ConfigError: it has executors or other parts that are Python objects, or declares sizes of arguments.
    """
    if isinstance(config.dynamic, DeclaredSizes):
        why = "declares sizes of arguments; a file has true, false or automatic only"
        refuse([Problem(None, None, "dynamic", why, (DECLARE_IN_PYTHON,))])
    advice = ("offer it from a plugin, and name it",)
    for name in LISTS:
        refuse(
            Problem(None, None, f"{name}[{index}]", f"{entry.name!r} is a Python object; a file has names only", advice)
            for index, entry in enumerate(getattr(config, name) or ())
            if entry.given is not None
        )
    return write_text(config.model_dump(exclude_none=True))


def check_config(config: Any) -> list[Problem]:
    """All problems of a configuration. `thunder.jit` accepts it exactly if there are none, apart from patterns that
    match no operation, for which `thunder.jit` warns.

    Loads the plugins that it names and creates its executors and transforms, so their failures are reported too.
    """
    try:
        resolved = resolve([*default_documents(), *documents_of(config)])
        problems = list(resolved.problems)
        if not problems:
            problems += unmatched_patterns(resolved, create_parts(resolved, problems).executors)
        return in_order(problems)
    except ThunderError as error:  # there is no such configuration, or the environment is not valid
        return [Problem(None, None, "", error.problem, error.advice)]


def _resolved(config: Any, executors: Any, transforms: Any, options: dict[str, Any]) -> ResolvedConfig:
    given = {"executors": executors, "transforms": transforms}
    arguments = {**options, **{name: value for name, value in given.items() if value is not None}}
    documents = [*default_documents(), *_configured(config), *([_arguments(arguments)] if arguments else [])]
    resolved = resolve(documents)
    refuse(resolved.problems)
    return resolved


def _configured(config: Any) -> list[Document]:
    """The documents of ``config``, or of the configuration that the environment names."""
    if config is not None:
        return documents_of(config)
    name = os.environ.get(VARIABLE)
    if not name:
        return []
    advice = (f"the environment variable {VARIABLE} names {name!r}",)
    try:
        documents = documents_of(name)
    except ConfigError as error:
        raise ConfigError(error.problem, advice=(*error.advice, *advice)) from error
    return [
        each.with_problems(replace(problem, advice=problem.advice + advice) for problem in each.problems)
        for each in documents
    ]


def _arguments(values: Mapping[str, Any]) -> Document:
    """The document with the arguments of ``jit``."""
    known = [name for name in ThunderConfig.model_fields if name != "extends"]
    unknown = [name for name in values if name not in known]
    given = document({name: value for name, value in values.items() if name in known})
    options = f"one of {', '.join(known)}"
    problems = [
        Problem(
            None, None, name, f"unknown option{suggestion(name, [*known, 'config'])}",
            (_advice_for(name, values[name]) or options,),
        )
        for name in unknown
    ]  # fmt: skip
    return given.with_problems([*problems, *given.problems])
