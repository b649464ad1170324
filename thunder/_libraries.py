"""Import of the libraries of this repository that functions of `thunder` need, and that are installed separately."""

from __future__ import annotations

import importlib
from typing import Any

from thunder_core.errors import PluginError


def library(name: str, module: str, users: str, prefix: str = "thunder_") -> Any:
    """A module of the package ``{prefix}{name}``.

    Args:
        name: the folder of the library in ``plugins/``.
        module: the name of the module in its package.
        users: the functions that need it, for the message.
        prefix: of the name of the package; ``thunder_plugin_`` for a plugin.

    Raises:
        PluginError: the package is not installed.
    """
    package = f"{prefix}{name}"
    try:
        return importlib.import_module(f"{package}.{module}")
    except ModuleNotFoundError as error:
        if error.name not in (package, f"{package}.{module}"):
            raise
        from thunder_core.plugins.first_party import install_command

        raise PluginError(
            f"{users} need the package {package.replace('_', '-')}, which is not installed",
            advice=(f"run: {install_command(name)}",),
        ) from error
