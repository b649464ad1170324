"""The hooks of the plugin. Importing this module does not import PyTorch."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, CommandSpec, hookimpl


@hookimpl
def thunder_commands() -> list[CommandSpec]:
    """The command ``thunder tune``."""
    return [CommandSpec("tune", "thunder_plugin_tuning.command:tune", summary="chooses executors by measurement")]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private names that the plugin uses."""
    return [CheckSpec("private names of PyTorch", "thunder_plugin_tuning.pytorch_internals:NAMES")]
