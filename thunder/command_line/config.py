"""``thunder config``: print and check configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thunder.command_line.output import print_json, print_lines

if TYPE_CHECKING:
    from thunder.config import Problem

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
        _print_problems(problems)
    if problems:
        raise typer.Exit(1)
    if not json:
        print_lines([to_yaml(resolve_config(config)).rstrip() if resolve else f"{config}: no problems"])


def _print_problems(problems: Sequence[Problem]) -> None:
    for problem in problems:
        print_lines([str(problem), *(f"  {item}" for item in problem.advice)])


@app.command()
def show(
    config: Annotated[
        str | None,
        typer.Argument(metavar="[CONFIG]", help="A file or the name of a preset; without it, that of thunder.jit(f)."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="The type of device of the programs; by default cuda if there is one, else cpu.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print a configuration completely, as programs on a device are compiled with it.

    It has everything that the configuration extends, all defaults, and the entries that ``...`` represents. Comments
    say where executors come from, and which optional entries cannot be used here.
    """
    from thunder.config import settings_of, to_yaml
    from thunder.config.by_device import resolved_for

    check_is_there(config, "CONFIG")
    settings = settings_of(config)
    shown = settings.config
    device = device or _device()
    used, preset = settings.for_device(device)
    if preset is not None:
        found = resolved_for(device, shown.executors)
        assert found is not None, "the preset was found"
        shown = shown.model_copy(update={"executors": found[1].config.executors})
    left_out = dict(used.left_out)
    if json:
        chosen = None if preset is None else asdict(preset)
        data = {"device": device, "preset": chosen, "left_out": left_out, "resolved": shown.model_dump(mode="json")}
        print_json({"config": config, **data})
        return
    comments = [] if preset is None else preset.lines()[:1]
    comments += [f"left out: {name}, because {reason}" for name, reason in left_out.items()]
    print_lines([*[f"# {line}" for line in comments], to_yaml(shown).rstrip()])


def _device() -> str:
    """The type of device of this machine."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
