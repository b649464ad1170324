"""Configurations: one validated file that says who runs what, in which order.

What is offered here is imported when it is first used: compiling a program takes a part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_core.config.json_schema import schema as schema
    from thunder_core.config.model import ThunderConfig as ThunderConfig
    from thunder_core.config.problems import Problem as Problem
    from thunder_core.config.resolve import check_config as check_config
    from thunder_core.config.resolve import read_config as read_config
    from thunder_core.config.resolve import resolve_config as resolve_config
    from thunder_core.config.resolve import settings_of as settings_of
    from thunder_core.config.settings import Settings as Settings
    from thunder_core.config.yaml_writer import to_yaml as to_yaml

__all__ = [
    "Problem",
    "Settings",
    "ThunderConfig",
    "check_config",
    "read_config",
    "resolve_config",
    "schema",
    "settings_of",
    "to_yaml",
]

__getattr__ = lazy_imports(
    __name__,
    {
        "Problem": "problems",
        "Settings": "settings",
        "ThunderConfig": "model",
        "check_config": "resolve",
        "read_config": "resolve",
        "resolve_config": "resolve",
        "schema": "json_schema",
        "settings_of": "resolve",
        "to_yaml": "yaml_writer",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
