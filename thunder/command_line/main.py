"""The command ``thunder``: its subcommands and their exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from thunder import progress_bar
from thunder.command_line import cache, config, doctor, explain, new, plugins, schema, show
from thunder.command_line.plugin_commands import Commands
from thunder_core._version import __version__
from thunder_core.errors import ThunderError

app = typer.Typer(
    cls=Commands,
    help="Thunder compiles PyTorch programs. The commands list plugins, check configurations and explain compilations.",
    epilog="Exit codes: 0 success, 1 a check failed, 2 invalid usage.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"thunder {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Without a command, print the help and exit with the code of a usage error."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


app.command("plugins")(plugins.plugins)
app.command("doctor")(doctor.doctor)
app.command("schema")(schema.schema)
app.command("cache")(cache.cache)
app.add_typer(config.app, name="config")
app.command("explain")(explain.explain)
app.command("show")(show.show)
app.command("new")(new.new)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: what stands after ``thunder``; None for those of the process.

    Returns:
        The exit code: 0 for success; 1 if a check failed, or a `ThunderError` was raised, which is then
        printed without its traceback, or the output could not be written; 2 for invalid usage. Any other
        exception is raised.
    """
    _open_closed_streams()
    _never_fail_to_encode()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:  # not about the output
            raise
        if not isinstance(error, BrokenPipeError):  # else the reader has seen enough
            print(f"thunder: the output could not be written: {error.strerror}", file=sys.stderr)  # noqa: T201
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the buffer would fail again at exit
        return 1
    return code


def _run(arguments: Sequence[str] | None) -> int:
    if arguments is None:  # this is a process of its own
        progress_bar.request()
    try:
        app(None if arguments is None else list(arguments), prog_name="thunder")
    except SystemExit as stop:  # how Typer ends, in any case
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except ThunderError as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _open_closed_streams() -> None:
    """Replace streams that the shell closed (``>&-``), which are None in Python."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the process ends


def _never_fail_to_encode() -> None:
    """Escape characters that the encoding of the terminal lacks: names and reasons may have any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
