"""``thunder diff``: which decision, pass or kernel changed between two reports, or between two saved programs."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from thunder.command_line.output import print_json, print_lines

_FILE = "A report (thunder explain --json, CompileReport.to_json), or a file of thunder.save."


def diff(
    first: Annotated[str, typer.Argument(metavar="FIRST", help=_FILE)],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="The file to compare it with, of the same kind.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what differs between two reports, or between two files of saved programs.

    Of reports the latest programs: options, decisions of executors, the number of operations after each pass, fused
    regions, memory, guards, and times that differ by at least a tenth and a millisecond. The exit code is 0.
    """
    for file in (first, second):
        if not Path(file).is_file():
            raise typer.BadParameter(f"there is no file {file}")
    from thunder_plugin_explorer.difference import differences

    changes = differences(first, second)
    if json:
        print_json({"first": first, "second": second, "changes": [asdict(change) for change in changes]})
        return
    for subject, group in groupby(changes, key=lambda change: change.subject):
        lines = [f"{subject}:"]
        for change in group:
            if subject == "source":
                lines.append(f"  {change.name}: {'- ' + change.before if change.before else '+ ' + change.after}")
            else:
                lines.append(f"  {change.name}: {change.before or 'none'} -> {change.after or 'none'}")
        print_lines(lines)
    if not changes:
        print_lines(["no differences"])
