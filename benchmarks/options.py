"""Command line options, and the workloads that they select."""

from __future__ import annotations

import argparse
import itertools
import math
from argparse import ArgumentTypeError
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.comparison import CACHES
from benchmarks.implementations import FORMS
from benchmarks.workload import KV_CACHES, LOSSES, OPTIMIZERS, PRECISIONS, Workload

SHAPES = {
    ("cuda", "training"): (4, 2048),
    ("cuda", "other"): (1, 1024),
    ("cuda", "generation"): (1, 128),
    ("cpu", "training"): (2, 64),
    ("cpu", "other"): (1, 64),
    ("cpu", "generation"): (1, 12),
}
"""Default batch size and sequence length, for models that are not of the suite."""
NEW_TOKENS = {"cuda": 128, "cpu": 60}
COMMON = {"embedding": "size of the embedding", "heads": "number of heads", "vocabulary": "number of tokens"}
"""Sizes of language models, which each family maps to settings of its configuration."""
REPORT_TASKS = ("training", "forward", "generation")
PRECISION = {"cuda": "bf16-true", "cpu": "float32"}
THREADS = {"cuda": 8, "cpu": 1}
TURNS = {"cuda": 0, "cpu": 40}
"""None on a GPU: its memory is for one process, and its speed is steadier than that of a shared CPU."""


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for the output of results."""
    output = parser.add_argument_group("result")
    output.add_argument(
        "--baseline",
        metavar="IMPL",
        help="compute ratios to it; best: to the best that is not Thunder (default: compile, else eager)",
    )
    output.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    output.add_argument(
        "--keep", action="store_true", help="write the result to benchmarks/results/, named by date and commit"
    )
    output.add_argument(
        "--chart", "--plot", type=Path, metavar="FILE", help="draw a chart to a .png, .svg or .pdf; needs matplotlib"
    )


def add_implementations(parser: argparse.ArgumentParser) -> None:
    """Add the options for implementations and threads."""
    help_ = f"implementations: eager, thunder, {', '.join(FORMS)}"
    parser.add_argument("--impl", nargs="+", metavar="IMPL", help=help_)
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="CPU threads of each process (default: 1; for a GPU 8)"
    )


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Add the options for models and sizes."""
    model = parser.add_argument_group("model")
    model.add_argument("--model", nargs="+", metavar="NAME", help="names of models (default: small-llama)")
    model.add_argument("--list-models", action="store_true", help="list the names and exit")
    model.add_argument(
        "--layers", type=positive, nargs="+", metavar="N", help="number of layers; with several, each is measured"
    )
    for name, help_ in COMMON.items():
        model.add_argument(f"--{name}", type=positive, metavar="N", help=help_)
    model.add_argument("--override", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the model's config")
    work = parser.add_argument_group("work")
    work.add_argument(
        "--batch",
        type=positive,
        metavar="N",
        help="sequences or images per step (default: that of the suite, or 4 on a GPU, else 2; inference: 1)",
    )
    work.add_argument(
        "--sequence",
        type=positive,
        metavar="N",
        help="tokens per sequence (default: that of the suite, or 2048 on a GPU, inference 1024; 64 on a CPU)",
    )
    work.add_argument(
        "--precision",
        nargs="+",
        choices=PRECISIONS,
        metavar="NAME",
        help=f"{', '.join(PRECISIONS)} (default: bf16-true on a GPU, else float32)",
    )
    work.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    work.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help="for training (default: adamw, fused)")
    work.add_argument(
        "--new-tokens", type=positive, metavar="N", help="for generation (default: 128 on a GPU, else 60)"
    )
    work.add_argument("--kv-cache", nargs="+", choices=KV_CACHES, help="for generation (default: each)")
    work.add_argument("--loss", choices=LOSSES, default="inside",
                      help="for training: inside or outside of the compiled program (default: inside)")  # fmt: skip


def add_comparison(parser: argparse.ArgumentParser) -> None:
    """Add the options for steps, rounds, turns, caches and noise."""
    runs = parser.add_argument_group("runs")
    runs.add_argument("--steps", type=positive, metavar="N", help="steps per run; the last half, at most 20, are timed")
    runs.add_argument(
        "--rounds", type=positive, metavar="N", default=1, help="number of times to run everything (default: 1)"
    )
    runs.add_argument("--turns", type=natural, metavar="N",
                      help="number of turns of each process of a round on a CPU; 0: one process after the other "
                      "(default: 40)")  # fmt: skip
    runs.add_argument("--cache", choices=CACHES, default="cold", help="state of the caches on disk (default: cold)")
    runs.add_argument("--noise", type=natural, default=2, metavar="N",
                      help="eager runs with other kernels, for the tolerance of losses (default: 2)")  # fmt: skip


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``report``."""
    models = parser.add_argument_group("selection")
    models.add_argument("--model", nargs="+", metavar="NAME", help="models of the suite or others (default: the suite)")
    models.add_argument("--list-models", action="store_true", help="list the names and exit")
    models.add_argument("--task", nargs="+", choices=REPORT_TASKS, default=list(REPORT_TASKS), help="default: all")
    models.add_argument("--small", action=argparse.BooleanOptionalAction,
                        help="the small variants of the suite (default: on a CPU)")  # fmt: skip
    models.add_argument("--precision", nargs="+", choices=PRECISIONS, metavar="NAME",
                        help="default: that of each model on a GPU, float32 on a CPU")  # fmt: skip
    models.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    add_comparison(parser)
    time = parser.add_argument_group("time")
    time.add_argument("--budget", type=positive_number, metavar="MINUTES",
                      help="end after this time, also within a run; the same command continues (default: none)",
                      )  # fmt: skip
    time.add_argument("--side-by-side", type=positive, default=1, metavar="N",
                      help="with --cache warm: fill the caches of N programs at once, and measure each alone after "
                      "(default: 1)")  # fmt: skip
    time.add_argument("--limit", type=positive_number, default=600, metavar="SECONDS",
                      help="a process without a result in this time has failed (default: 600)")  # fmt: skip
    time.add_argument("--retry", action="store_true", help="run again what has failed")
    time.add_argument("--restart", action="store_true", help="run everything again, and replace the file")
    time.add_argument("--against", type=Path, metavar="FILE",
                      help="the report to compare with (default: the last of this kind of machine in "
                      "benchmarks/results/)")  # fmt: skip


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``profile``."""
    runs = parser.add_argument_group("profile")
    runs.add_argument("--steps", type=positive, metavar="N", default=16, help="number of timed steps (default: 16)")
    runs.add_argument("--together", action="store_true",
                      help="compile all at the same time, then measure one after the other; first steps are not "
                      "reported (default: one process after the other)")  # fmt: skip
    runs.add_argument("--kernels", type=natural, metavar="N", default=12,
                      help="list the N longest kernels of each implementation (default: 12; 0: none)")  # fmt: skip
    runs.add_argument("--folder", type=Path, metavar="DIR",
                      help="write all kernels of each implementation, and the output of thunder.explain, to DIR",
                      )  # fmt: skip


def workloads(options: argparse.Namespace, tasks: list[str], device: str) -> list[Workload]:
    """All combinations of the selected models, tasks, precisions and numbers of layers.

    Raises:
        UnknownModel: there is no such model, or it has no such setting.
        ValueError: a setting cannot be parsed.
    """
    from benchmarks.models.catalogue import check

    models = [check(name) for name in options.model or ["small-llama"]]
    fixed = {name: getattr(options, name) for name in COMMON if getattr(options, name)}
    overridden = dict(map(_setting, options.override))
    fixed |= overridden
    depths: list[dict[str, Any]] = [{"layers": count} for count in options.layers or []] or [{}]
    for model, depth in itertools.product(models, depths[:1]):
        _check_settings(model, fixed | depth, overridden)
    precisions = options.precision or [PRECISION[device]]
    selected = []
    for model, task, precision, depth in itertools.product(models, tasks, precisions, depths):
        common = {"steps": options.steps, "overrides": fixed | depth}
        more = {"new_tokens": options.new_tokens, "kv_caches": options.kv_cache}
        more |= {"optimizer": options.optimizer, "loss": options.loss}
        selected += workloads_of(
            model, task, precision, device, batch=options.batch, sequence=options.sequence, **common, **more
        )
    return selected


def workloads_of(
    model: str,
    task: str,
    precision: str,
    device: str,
    *,
    batch: int | None = None,
    sequence: int | None = None,
    new_tokens: int | None = None,
    kv_caches: Sequence[str] | None = None,
    **common: Any,
) -> list[Workload]:
    """A workload of a model, with sizes of the suite or default sizes for those that are None.

    ``generation`` has one for each kind of cache, by default one for each of `KV_CACHES`.
    """
    from benchmarks.models.catalogue import has_sequences, sizes_of

    shape = SHAPES[device, task if task in ("training", "generation") else "other"]
    if suite := sizes_of(model):
        shape = (suite.batch, suite.sequence)
    sizes = {"batch": batch or shape[0], "sequence": (sequence or shape[1]) if has_sequences(model) else 0}
    if task != "generation":
        return [Workload(model, task, precision, device, **sizes, **common)]
    count = new_tokens or NEW_TOKENS[device]
    return [
        Workload(model, task, precision, device, new_tokens=count, kv_cache=kind, **sizes, **common)
        for kind in kv_caches or KV_CACHES
    ]


def _check_settings(model: str, settings: dict[str, Any], overridden: Collection[str]) -> None:
    """Raise `UnknownModel` with the name of the option, before a process is started."""
    from benchmarks.models.catalogue import check_setting
    from benchmarks.models.model import UnknownModel

    for name, value in settings.items():
        try:
            check_setting(model, name, value)
        except UnknownModel as error:
            raise UnknownModel(f"--{'override' if name in overridden else name}: {error}") from error


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if not name or not value.strip():
        raise ValueError(f"--override takes NAME=VALUE, not {text!r}; null is not supported, and text may be quoted")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise ValueError(f"--override takes NAME=VALUE with a value in YAML, not {text!r}: {problem}") from error


def positive(text: str) -> int:
    """Parse an integer of at least 1. Raises ArgumentTypeError for other text."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """Parse an integer of at least 0. Raises ArgumentTypeError for other text."""
    return _at_least(0, text)


def positive_number(text: str) -> float:
    """Parse a number above 0. Raises ArgumentTypeError for other text."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ArgumentTypeError(f"must be an integer of at least {least}, not {text!r}")
    return value
