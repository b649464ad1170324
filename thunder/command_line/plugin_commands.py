"""The commands of plugins: loaded when they are called, or listed in the help."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from thunder.command_line.plugin_rows import load_all
from thunder_core.errors import PluginError


class Commands(TyperGroup):
    """The commands of Thunder, followed by those of installed plugins."""

    def list_commands(self, ctx: Any) -> list[str]:
        from thunder_core.plugins.host import host
        from thunder_core.plugins.specs import CommandSpec

        names = super().list_commands(ctx)
        try:
            load_all(host())
            return [*names, *[item.spec.name for item in host().offered(CommandSpec)]]
        except PluginError:  # THUNDER_PLUGINS names an unknown plugin, which `thunder plugins` reports
            return names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None if there is none.

        Raises:
            PluginError: it is the command of a plugin of this repository that cannot be used, or cannot be imported.
        """
        return super().get_command(ctx, cmd_name) or _command_of_plugin(cmd_name)


def _command_of_plugin(name: str) -> Any:
    from thunder_core.plugins.first_party import first_party_items
    from thunder_core.plugins.host import host
    from thunder_core.plugins.lookup import find
    from thunder_core.plugins.specs import CommandSpec

    try:
        offered = find(CommandSpec, name)
    except PluginError:
        if name in first_party_items():
            raise
        return None
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name)(host().import_object(offered))
    return typer.main.get_command(app)
