"""``thunder plugins``: which plugins are installed, and whether they can be used."""

from __future__ import annotations

from typing import Annotated

import typer

from thunder.command_line.output import print_json, print_table


def plugins(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the installed plugins.

    Shows the distribution, version and state of each, what it provides, and the reason if it cannot be used.
    The environment variable THUNDER_PLUGINS allows or blocks plugins by name; with THUNDER_STRICT=1 the exit code is 1
    if one of them has a defect.
    """
    from thunder.command_line.plugin_rows import described, load_all, plugin_table
    from thunder_core.plugins.host import host

    found = host()
    defects = load_all(found)
    if json:
        print_json({"plugins": described(found)})
    else:
        print_table(*plugin_table(found))
    if defects is not None:
        raise defects
