"""``thunder config``: print and check configurations."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from thunder.command_line.output import print_json, print_lines

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@app.callback()
def _config(context: typer.Context) -> None:
    """Check and print configurations."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def check_is_there(config: str | None, hint: str = "--config") -> None:
    """Raise typer.BadParameter if ``config``, the value of the parameter ``hint``, is the path of a missing file."""
    from thunder.config.document import SUFFIXES, document_of

    if config is not None and config.endswith(SUFFIXES) and not Path(config).expanduser().exists():
        raise typer.BadParameter(str(document_of(config).problems[0]), param_hint=hint)


@app.command()
def check(
    config: Annotated[
        str,
        typer.Argument(metavar="CONFIG", help="The configuration: a file, in YAML or JSON, or a preset's name."),
    ],
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Print the configuration with its presets and all defaults filled in.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a configuration, as thunder.jit(config=...) takes it.

    Prints all problems, each with its file and line; the exit code is 1 if there are any. Loads the plugins that the
    configuration names and creates their executors and transforms. So thunder.jit accepts exactly the configurations
    without problems, except that it only warns about patterns that match no operation.
    """
    from thunder.config import check_config, resolve_config, to_yaml

    check_is_there(config, "CONFIG")
    problems = check_config(config)
    if json:
        data: dict[str, object] = {"config": config, "problems": [asdict(problem) for problem in problems]}
        if resolve and not problems:
            data["resolved"] = resolve_config(config).model_dump(mode="json")
        print_json(data)
    else:
        for problem in problems:
            print_lines([str(problem), *(f"  {item}" for item in problem.advice)])
    if problems:
        raise typer.Exit(1)
    if not json:
        print_lines([to_yaml(resolve_config(config)).rstrip() if resolve else f"{config}: no problems"])
