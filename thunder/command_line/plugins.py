"""``thunder plugins``: which plugins are installed, and whether they can be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from thunder.command_line.output import print_json, print_lines


def plugins(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show everything about this plugin.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the installed plugins.

    Shows the version and state of each in one line, what it provides, and the reason if it cannot be used. With NAME it
    shows everything about one plugin: its distribution, items with their summaries, and what to do about a defect.
    The environment variable THUNDER_PLUGINS allows or blocks plugins by name; with THUNDER_STRICT=1 the exit code is 1
    if one of them has a defect.
    """
    from thunder.command_line.plugin_rows import described, load_all, plugin_lines, print_plugins
    from thunder_core.plugins.host import host

    found = host()
    defects = load_all(found)
    if name is not None:
        plugin = _of_name(described(found), name)
        if json:
            print_json(plugin)
        else:
            print_lines(plugin_lines(plugin))
    elif json:
        print_json({"plugins": described(found)})
    else:
        print_plugins(found)
    if defects is not None:
        raise defects


def _of_name(plugins: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """The plugin of a name.

    Raises:
        PluginError: none has it.
    """
    from thunder_core.errors import PluginError, suggestion
    from thunder_core.plugins.first_party import first_party_items, how_to_get

    for plugin in plugins:
        if plugin["name"] == name:
            return plugin
    names = [plugin["name"] for plugin in plugins]
    advice = how_to_get(name) if name in first_party_items() else f"installed are {', '.join(names)}"
    raise PluginError(f"there is no plugin {name!r}{suggestion(name, names)}", advice=(advice,))
