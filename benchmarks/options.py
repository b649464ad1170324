"""Command line options, and the workloads that they select."""

from __future__ import annotations

import argparse
import itertools
from argparse import ArgumentTypeError
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from benchmarks.comparison import CACHES
from benchmarks.implementations import FORMS
from benchmarks.workload import LOSSES, OPTIMIZERS, PRECISIONS, Workload

SHAPES = {
    ("cuda", "training"): (4, 2048),
    ("cuda", "other"): (1, 1024),
    ("cpu", "training"): (2, 64),
    ("cpu", "other"): (1, 64),
}
"""Default batch size and sequence length."""
COMMON = {"embedding": "size of the embedding", "heads": "number of heads", "vocabulary": "number of tokens"}
"""Sizes of language models, which each family maps to settings of its configuration."""
PRECISION = {"cuda": "bf16-true", "cpu": "float32"}
THREADS = {"cuda": 8, "cpu": 1}
TURNS = {"cuda": 0, "cpu": 40}
"""None on a GPU: its memory is for one process, and its speed is steadier than that of a shared CPU."""


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for the output of results."""
    output = parser.add_argument_group("result")
    output.add_argument("--baseline", metavar="IMPL", help="compute ratios to it (default: compile, else eager)")
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
        help="sequences or images per step (default: 4 on a GPU, else 2; inference: 1)",
    )
    work.add_argument(
        "--sequence",
        type=positive,
        metavar="N",
        help="tokens per sequence (default: 2048 on a GPU, inference 1024; 64 on a CPU)",
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
    from benchmarks.models.small import WITHOUT_TOKENS

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
        batch, sequence = SHAPES[device, "training" if task == "training" else "other"]
        length = 0 if model in WITHOUT_TOKENS else options.sequence or sequence
        sizes = {"batch": options.batch or batch, "sequence": length, "steps": options.steps}
        common = {"optimizer": options.optimizer, "loss": options.loss, "overrides": fixed | depth}
        selected.append(Workload(model, task, precision, device, **sizes, **common))
    return selected


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


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ArgumentTypeError(f"must be an integer of at least {least}, not {text!r}")
    return value
