"""Configurations: one validated file that says who runs what, in which order."""

from thunder_core.config.json_schema import schema
from thunder_core.config.model import ThunderConfig
from thunder_core.config.problems import Problem
from thunder_core.config.resolve import check_config, read_config, resolve_config, settings_of
from thunder_core.config.settings import Settings
from thunder_core.config.yaml_writer import to_yaml

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
