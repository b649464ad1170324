"""``thunder config``: what a configuration says, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thunder.command_line.output import print_lines

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def _config(context: typer.Context) -> None:
    """Look at configurations."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def check_is_there(config: str | None) -> None:
    """Raise typer.BadParameter, as ``thunder config check`` does, if ``--config`` names a file that is not there."""
    from thunder_core.config.sources import SUFFIXES, document_of

    if config is not None and config.endswith(SUFFIXES) and not Path(config).expanduser().exists():
        raise typer.BadParameter(str(document_of(config).problems[0]), param_hint="--config")


@app.command()
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The configuration, in YAML.")
    ],
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Print the configuration with its presets and all defaults filled in.")
    ] = False,
) -> None:
    """Check a configuration.

    All problems are printed, each with its file and line; the exit code is 1 if there are any. Plugins that are named
    are loaded, so that their options are checked as well.
    """
    from thunder_core.config import check_config, resolve_config, to_yaml

    problems = check_config(file)
    for problem in problems:
        print_lines([str(problem), *(f"  {item}" for item in problem.advice)])
    if problems:
        raise typer.Exit(1)
    print_lines([to_yaml(resolve_config(file)).rstrip() if resolve else f"{file}: no problems"])
