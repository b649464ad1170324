"""``thunder tune``: chooses the executors of a program by measurement."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thunder.command_line.config import check_is_there
from thunder.command_line.explain import INPUTS, PROGRAM, names_in, without_own_frames
from thunder.command_line.output import print_json, print_lines

if TYPE_CHECKING:
    from thunder_plugin_tuning.tuning import Tuning


def tune(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help=PROGRAM)],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the configuration to a file, instead of printing it."
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="The configuration whose executors are chosen: a file, or the name of a preset.")
    ] = None,
    executors: Annotated[
        str | None,
        typer.Option(help="Choose among these, and those of the configuration: a,b. By default all installed."),
    ] = None,
    inputs: Annotated[str | None, typer.Option(help=INPUTS)] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Run backward, too, from the sum of all floating-point outputs.")
    ] = False,
    limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="The time after which nothing new is compiled or timed.")
    ] = 120.0,
    tolerance: Annotated[
        float | None, typer.Option(help="The accepted error of results; by default that of their dtypes.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose the executors of a program by measurement.

    Compiles the program with the default executors, then with others: all operations by another executor, and single
    operations. Each candidate's results are compared with the default's, and it is timed in the whole program, in
    alternation with the fastest so far. Prints the configuration, with what was measured as comments. Progress is on
    standard error.
    """
    check_is_there(config)
    if limit <= 0:
        raise typer.BadParameter(f"{limit:g} is not a positive number of seconds", param_hint="--limit")
    if output is not None:
        if not output.endswith((".yaml", ".yml")):
            raise typer.BadParameter(f"{output!r} does not end with .yaml or .yml", param_hint="--output")
        if not Path(output).absolute().parent.is_dir():
            raise typer.BadParameter(f"there is no folder {Path(output).parent}", param_hint="--output")
    names = None if executors is None else names_in(executors)
    with contextlib.redirect_stdout(sys.stderr), without_own_frames(program):
        found = _tuned(program, inputs, train, config, names, limit, tolerance)
        if output is not None:
            found.write(output)
    if json:
        print_json(found.as_data())
    elif output is None:
        print_lines([found.yaml().rstrip()])
    else:
        print_lines([_summary(found), f"wrote {output}: thunder.jit(model, config={output!r})"])


def _tuned(
    target: str,
    inputs: str | None,
    train: bool,
    config: str | None,
    names: list[str] | None,
    limit: float,
    tolerance: float | None,
) -> Tuning:
    from thunder.command_line.program import load_program
    from thunder_plugin_tuning.tuning import tune as run

    program = load_program(target)
    args, kwargs = program.arguments(inputs)
    return run(
        program.called, args, kwargs, train=train, config=config, executors=names, limit=limit, tolerance=tolerance,
        name=target, progress=_progress(),
    )  # fmt: skip


def _progress() -> Callable[[str], None]:
    start = time.perf_counter()

    def report(line: str) -> None:
        print(f"[{time.perf_counter() - start:6.1f} s] {line}", file=sys.stderr, flush=True)  # noqa: T201

    return report


def _summary(found: Tuning) -> str:
    from thunder_plugin_tuning.configuration import names_of
    from thunder_plugin_tuning.measurement import times_text

    if found.times is None:
        return f"{found.program}: no change of the default executors ({names_of(found.default)}) is faster"
    faster = found.times.before / found.times.after
    return f"{found.program}: {times_text(found.times.before, found.times.after)}, {faster:.2f} times as fast"
