"""``thunder show``: the programs in a file of `thunder.save`, what they cover, and what they assume."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thunder._libraries import library
from thunder.command_line.output import print_json, print_lines


def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that thunder.save wrote.")],
    source: Annotated[bool, typer.Option("--source", help="Print the source of the programs, too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the programs in a file of thunder.save.

    Lists the versions that it needs, its state, and the calls that each program covers. The file is verified, and
    nothing in it runs. An assumption is something that a program was compiled for and that the loaded program does not
    check, such as a global variable.
    """
    if not Path(file).is_file():
        raise typer.BadParameter(f"there is no file {file}")
    contents = library("saving", "show", "save, load and thunder show")
    archive = contents.read_archive(file)
    if json:
        print_json(archive.manifest)
    else:
        print_lines(contents.lines_of(archive, source=source))
