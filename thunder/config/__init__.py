"""Configurations: one validated file that lists executors and transforms in order.

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
