"""The hooks of the plugin. Importing this module does not import PyTorch."""

from __future__ import annotations

from thunder_core.plugins import CommandSpec, hookimpl


@hookimpl
def thunder_commands() -> list[CommandSpec]:
    """The command ``thunder tune``."""
    return [CommandSpec("tune", "thunder_plugin_tuning.command:tune", summary="chooses executors by measurement")]
