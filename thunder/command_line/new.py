"""``thunder new``: create a plugin's package from a template."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from thunder.command_line.output import print_json, print_lines


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the plugin and of its package: my_kernels.")],
    directory: Annotated[
        Path, typer.Option("--directory", "-d", exists=True, file_okay=False, help="The parent of the new folder NAME.")
    ] = Path(),
    front_end: Annotated[
        bool, typer.Option("--front-end", help="Create a front end, which records programs, in place of a kernel.")
    ] = False,
    transform: Annotated[
        bool, typer.Option("--transform", help="Create a transform, which changes programs, in place of a kernel.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create a plugin with a kernel and tests.

    It is the distribution thunder-plugin-NAME, with a kernel, an executor with options that claims an operation for it,
    tests, and a README. The tests pass without changes. Replace the example kernel with yours.

    With --front-end it has a front end for a small kind of programs instead, with --transform a pass over programs.
    """
    from thunder.command_line.new_plugin import (
        FRONT_END,
        KERNEL,
        TRANSFORM,
        NewPlugin,
        name_problem,
        taken,
        write_plugin,
    )
    from thunder_core.plugins.first_party import install_command

    if front_end and transform:
        raise typer.BadParameter("--front-end and --transform exclude each other", param_hint="--transform")

    name = name.replace("-", "_")
    folder = directory / name
    problem = name_problem(name)
    if problem is None and folder.exists():
        problem = f"{folder} exists; choose another name, or another --directory"
    problem = problem or taken(name)
    if problem is not None:
        raise typer.BadParameter(problem, param_hint="NAME")
    plugin = NewPlugin(name, FRONT_END if front_end else TRANSFORM if transform else KERNEL)
    written = write_plugin(plugin, folder)
    part = "transforms" if transform else "executors"
    files = [str(path.relative_to(folder)) for path in written]
    commands = [
        *([] if find_spec("thunder_testing") else [install_command("testing")]),
        f'pip install --editable "{folder}[test]"',
        f"pytest {folder}",
        *([] if front_end else [f"thunder explain program.py:model --{part} {name}"]),
    ]
    if json:
        print_json({"folder": folder, "distribution": plugin.distribution, "files": files, "next": commands})
        return
    print_lines([f"Created {folder}, the distribution {plugin.distribution}:", *[f"  {file}" for file in files]])
    print_lines(["Next:", *[f"  {command}" for command in commands]])
