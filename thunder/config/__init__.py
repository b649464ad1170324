"""Configurations: one validated file that lists executors and transforms in order.

A configuration is read in four steps, which report all problems at once, with file and line:

- `Document` (`document`): one source, such as a preset, a file or the arguments of `thunder.jit`, with line numbers.
- `ThunderConfig` (`model`): the options, and an `Entry` for each executor and transform, merged from all documents.
- `ResolvedConfig` (`resolve`): the same with the specification and the complete options of each entry. No
  implementation is imported yet.
- `ConfiguredSettings` (`settings`): the `thunder_core.settings.Settings` of the core, with executors, transforms and
  the front end as objects.

`entry.LISTS` has a row for each list of entries. Validation, merging, resolution, creation and the JSON schema are
loops over it. If a plugin is missing, an ``optional`` entry is left out, and any other is a `Problem`.

Names of this package are imported on first use: a compilation needs only some of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder.config.api import check_config as check_config
    from thunder.config.api import read_config as read_config
    from thunder.config.api import resolve_config as resolve_config
    from thunder.config.api import settings_of as settings_of
    from thunder.config.api import to_yaml as to_yaml
    from thunder.config.model import ThunderConfig as ThunderConfig
    from thunder.config.problems import Problem as Problem
    from thunder.config.settings import ConfiguredSettings as ConfiguredSettings

__all__ = [
    "ConfiguredSettings",
    "Problem",
    "ThunderConfig",
    "check_config",
    "read_config",
    "resolve_config",
    "settings_of",
    "to_yaml",
]

__getattr__ = lazy_imports(
    __name__,
    {
        "Problem": "problems",
        "ConfiguredSettings": "settings",
        "ThunderConfig": "model",
        "check_config": "api",
        "read_config": "api",
        "resolve_config": "api",
        "settings_of": "api",
        "to_yaml": "api",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
