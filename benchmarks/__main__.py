"""The command line: ``python -m benchmarks COMMAND``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import chart, commands, options
from benchmarks.figures import FIGURES
from benchmarks.implementations import UnknownImplementation
from benchmarks.operators import command as operators
from benchmarks.process import ChildFailed
from benchmarks.result_file import InvalidResult
from benchmarks.selection import InvalidOptions

COMPARISONS = {
    "train-step": ("training steps of a model: time, memory, first step, losses", {"tasks": ["training"], "steps": 50}),
    "inference": ("prefill, and batch-1 decode with a KV cache", {"tasks": ["prefill", "decode"], "steps": 40}),
    "models": (
        "forward and backward of small models on a CPU, in one table",
        {
            "tasks": ["training"],
            "steps": 20,
            "model": ["nanogpt", "resnet", "small-bert", "small-llama"],
            "impl": ["eager", "compile", "thunder[inductor]"],
            "optimizer": "none",
            "device": "cpu",
            "by_metric": True,
            "metrics": ("step", "cold", "warm", "loss"),
        },
    ),
}
"""The commands that compare implementations on models: help and default options."""
INTERRUPTED = 130
"""The exit code of shells for a program that SIGINT ends."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 if a run failed, 3 if `report` has runs left, 130 after ctrl-c.

    Invalid options exit with 2.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        if chosen.chart:
            chart.check(chosen.chart)
        return chosen.run(chosen)
    except (UnknownImplementation, chart.ChartError, InvalidResult, InvalidOptions) as error:
        parser.error(str(error))
    except ChildFailed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; --json and --keep have written the finished runs", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Benchmarks of Thunder, eager and torch.compile."
    )
    commands_ = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, (help_, defaults) in COMPARISONS.items():
        command = _command(commands_, name, help_)
        options.add_implementations(command)
        options.add_workload(command)
        options.add_comparison(command)
        if name == "inference":
            command.add_argument("--phase", nargs="+", choices=defaults["tasks"], dest="tasks", help="default: both")
        command.set_defaults(run=commands.compare_models, **{"by_metric": False, "metrics": None} | defaults)
    command = _command(commands_, "profile", "kernels of a training step by class, and idle time")
    options.add_implementations(command)
    options.add_workload(command)
    options.add_profile(command)
    command.set_defaults(run=commands.profile, tasks=["training"])
    for name, figure in FIGURES.items():
        command = _command(commands_, name, figure.help)
        options.add_implementations(command)
        if figure.metrics:
            options.add_workload(command)
            options.add_comparison(command)
            command.set_defaults(tasks=list(figure.tasks), metrics=figure.metrics, by_metric=True, noise=0)
        command.set_defaults(run=commands.measure_figures, figures=[name])
    command = _command(commands_, "all", "everything from overhead to plugin-discovery")
    options.add_implementations(command)
    command.set_defaults(run=commands.measure_figures, figures=list(FIGURES))
    command = _command(commands_, "report", "the suite of models on this machine, resumable, against the last report")
    options.add_implementations(command)
    options.add_report(command)
    command.set_defaults(run=commands.measure_report, noise=1)
    command = _command(commands_, "operators", "single operators: time, share of the machine's limit, error, claims")
    operators.add_options(command)
    command.set_defaults(run=commands.measure_operators)
    command = _command(commands_, "show", "results that were written with --json or --keep")
    command.add_argument("files", nargs="+", type=Path, metavar="FILE")
    command.add_argument("--markdown", action="store_true", help="print Markdown")
    command.add_argument("--readme", action="store_true", help="write the report into the README's section Benchmarks")
    command.set_defaults(run=commands.show_results)
    return parser


def _command(
    commands_: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help_: str
) -> argparse.ArgumentParser:
    command = commands_.add_parser(name, help=help_, description=help_[0].upper() + help_[1:] + ".")
    options.add_output(command)
    return command


if __name__ == "__main__":
    sys.exit(main())
