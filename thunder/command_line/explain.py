"""``thunder explain``: what runs a program and what it cost, and the sections of its report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thunder.command_line.config import check_is_there
from thunder.command_line.output import print_json, print_lines, print_table
from thunder_core.errors import ThunderError

if TYPE_CHECKING:
    from thunder.report.compile_report import CompileReport
    from thunder.report.decisions import DecisionRow, Share

PROGRAM = (
    "The program: path/to/program.py:NAME or package.module:NAME. NAME is an nn.Module, a function, or a result of "
    "thunder.jit. A class of modules is instantiated; a function without parameters that returns one of these is "
    "called."
)
INPUTS = (
    "The arguments of the program, as a Python expression: one argument, a tuple of arguments, or a dict of keyword "
    "arguments. It can use the names of the program's file, and torch. The default is `inputs` or `example_inputs` of "
    "the program or of its file: a value, or a function that returns one."
)


def explain(
    program: Annotated[
        str,
        typer.Argument(metavar="PROGRAM", help=PROGRAM),
    ],
    config: Annotated[str | None, typer.Option(help="A configuration: a file, or the name of a preset.")] = None,
    executors: Annotated[str | None, typer.Option(help="Names of executors, in order: a,b.")] = None,
    transforms: Annotated[str | None, typer.Option(help="Names of transforms to add: a,b.")] = None,
    inputs: Annotated[str | None, typer.Option(help=INPUTS)] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Run backward, too, from the sum of all floating-point outputs.")
    ] = False,
    op: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Show operations by name: softmax, '*norm*'.")
    ] = None,
    programs: Annotated[bool, typer.Option("--programs", help="Show the compilations, and why each happened.")] = False,
    stages: Annotated[bool, typer.Option("--stages", help="Show the stages of the compilation.")] = False,
    decisions: Annotated[
        bool, typer.Option("--decisions", help="Show the executor of each operation, and why others declined.")
    ] = False,
    regions: Annotated[bool, typer.Option("--regions", help="Show the fused regions.")] = False,
    training: Annotated[bool, typer.Option("--training", help="Show derivatives, and what is saved.")] = False,
    sizes: Annotated[bool, typer.Option("--sizes", help="Show the sizes that vary.")] = False,
    collectives: Annotated[bool, typer.Option("--collectives", help="Show the collectives.")] = False,
    notes: Annotated[bool, typer.Option("--notes", help="Show notes of transforms.")] = False,
    guards: Annotated[bool, typer.Option("--guards", help="Show the guards.")] = False,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the explorer, a page for browsers, to a file.")
    ] = None,
    perfetto: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto: time, memory, collectives.")
    ] = None,
    svg: Annotated[str | None, typer.Option(metavar="FILE", help="Write a picture of a small program.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compile a program and show what runs it.

    Prints a summary: the share of each executor, the times of the compilation, why programs were compiled, and what is
    saved for backward. The options name sections, which are shown instead. Without --train the program runs without
    gradients.
    """
    from thunder.report.summary import SECTIONS

    flags = (programs, stages, decisions or op is not None, regions, training, sizes, collectives, notes, guards)
    shown = [name for name, wanted in zip(SECTIONS, flags, strict=True) if wanted]
    check_is_there(config)
    for name, file in (("--html", html), ("--perfetto", perfetto), ("--svg", svg)):
        if file is not None and not Path(file).absolute().parent.is_dir():
            raise typer.BadParameter(f"there is no folder {Path(file).parent}", param_hint=name)
    lists = {"executors": executors, "transforms": transforms}
    options = {"config": config} | {name: None if given is None else names_in(given) for name, given in lists.items()}
    with contextlib.redirect_stdout(sys.stderr):  # prints of the program are not part of the report
        report = _compile(program, inputs, train, {name: value for name, value in options.items() if value is not None})
    rows = _rows(report, op)
    if html is not None:
        report.to_html(html)
    if perfetto is not None:
        report.to_perfetto(perfetto)
    if svg is not None:
        report.to_svg(svg)
    if json:
        print_json(_as_data(program, report, op, rows))
        return
    for number, name in enumerate(shown):
        print_lines([""] if number else [])
        if name == "decisions":
            _print_decisions(program, report, op, rows)
        else:
            print_lines([str(getattr(report, name))])
    if not shown:
        print_lines([str(report.renamed(program))])


def names_in(given: str) -> list[str]:
    """The names in a comma-separated list."""
    return [name.strip() for name in given.split(",") if name.strip()]


def _compile(target: str, inputs: str | None, train: bool, options: dict[str, Any]) -> CompileReport:
    """The report of one call of the program; of the calls of its file, if these are all that can be known.

    Raises:
        ThunderError: it could not be compiled, or nothing was compiled for it.
        typer.BadParameter: there is no such program, or it cannot be called with its inputs.
        typer.Exit: it raised another error, which was printed.
    """
    import thunder
    from thunder.command_line.program import is_compiled, load_program
    from thunder.command_line.running import run

    with without_own_frames(target):
        program = load_program(target)
        reuse = is_compiled(program.called) and not options
        if reuse and inputs is None and not train and not program.has_inputs():
            report = thunder.explain(program.called)
            if report.entries:
                return report
        args, kwargs = program.arguments(inputs)
        jitted = program.called if reuse else thunder.jit(program.called, **options)
        run(jitted, args, kwargs, train)
    report = thunder.explain(jitted)
    if not report.entries:
        reasons = "; ".join(report.fallbacks)
        raise ThunderError(f"{target} was not compiled; eager PyTorch ran it, because {reasons}")
    return report


@contextlib.contextmanager
def without_own_frames(target: str) -> Iterator[None]:
    """A context that prints errors of the program as Python does, with the lines of the program."""
    from thunder.command_line.failure import print_failure

    try:
        yield
    except (ThunderError, typer.BadParameter):
        raise
    except (Exception, SystemExit) as error:
        print_failure(error)
        print(f"{target} failed", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from error


def _rows(report: CompileReport, pattern: str | None) -> list[DecisionRow]:
    from thunder.command_line.explain_rows import matches
    from thunder.report.decisions import decision_rows

    rows = decision_rows(report.decisions)
    found = [row for row in rows if pattern is None or matches(row.symbol, pattern)]
    if not found and rows:
        names = ", ".join(sorted({row.symbol for row in rows}))
        raise ThunderError(
            f"the program has no operation that matches {pattern!r}", advice=(f"its operations are {names}",)
        )
    return found


def _print_decisions(target: str, report: CompileReport, pattern: str | None, rows: Sequence[DecisionRow]) -> None:
    from thunder.command_line.explain_rows import operation_table, share_table

    entry = report.entries[-1]
    left_out = report.left_out_lines()
    left_out += [f"run by eager PyTorch {count} times: {reason}" for reason, count in report.fallbacks.items()]
    preset = [] if entry.preset is None else entry.preset.lines()
    print_lines([f"{target}: compiled in {entry.seconds * 1e3:.0f} ms", *left_out, *preset, ""])
    print_table(*operation_table(rows))
    print_lines([""])
    print_table(*share_table(_shares(report, pattern)))
    if entry.as_recorded is not None:
        print_lines(["", f"It runs operation by operation under PyTorch's autograd: {entry.as_recorded}"])


def _shares(report: CompileReport, pattern: str | None) -> Sequence[Share]:
    """The shares of the executors in the operations that a pattern matches."""
    from thunder.command_line.explain_rows import matches
    from thunder.report.decisions import shares

    return shares([op for op in report.decisions if pattern is None or matches(op.symbol, pattern)])


def _as_data(target: str, report: CompileReport, pattern: str | None, rows: Sequence[DecisionRow]) -> dict[str, Any]:
    return {
        "program": target,
        "operations": [asdict(row) for row in rows],
        "shares": [asdict(share) for share in _shares(report, pattern)],
        "report": asdict(report),
    }
