"""The hooks of the plugin. Importing this module does not import PyTorch."""

from __future__ import annotations

from thunder_core.plugins import CommandSpec, hookimpl


@hookimpl
def thunder_commands() -> list[CommandSpec]:
    """The command ``thunder diff``. The pages are options of ``thunder explain``."""
    return [
        CommandSpec(
            "diff",
            "thunder_plugin_explorer.diff_command:diff",
            summary="compares two reports or two saved programs",
        )
    ]
