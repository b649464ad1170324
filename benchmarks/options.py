"""The options of the commands, and the workloads that they ask for."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from benchmarks.counts import natural, positive
from benchmarks.implementations import FORMS
from benchmarks.plan import CACHES
from benchmarks.workload import LOSSES, OPTIMIZERS, PRECISIONS, Workload

SHAPES = {
    ("cuda", "training"): (4, 2048),
    ("cuda", "other"): (1, 1024),
    ("cpu", "training"): (2, 64),
    ("cpu", "other"): (1, 64),
}
"""Default batch and sequence."""
COMMON = {"embedding": "size of the embedding", "heads": "number of heads", "vocabulary": "number of tokens"}
"""Sizes of language models, which each family translates into its own words."""
PRECISION = {"cuda": "bf16-true", "cpu": "float32"}
THREADS = {"cuda": 8, "cpu": 1}
TURNS = {"cuda": 0, "cpu": 40}
"""A GPU's memory holds one process at its peak, and its clock does not drift as that of a shared CPU does."""


def add_output(parser: argparse.ArgumentParser) -> None:
    """What becomes of a result."""
    output = parser.add_argument_group("result")
    output.add_argument("--baseline", metavar="IMPL", help="ratios refer to it (default: compile, else eager)")
    output.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    output.add_argument("--keep", action="store_true", help="write it to benchmarks/results/, named by date and commit")
    output.add_argument(
        "--chart", "--plot", type=Path, metavar="FILE", help="draw it, to a .png, .svg or .pdf; needs matplotlib"
    )


def add_implementations(parser: argparse.ArgumentParser) -> None:
    """Who is compared, and on how many threads."""
    help_ = f"implementations: eager, thunder, {', '.join(FORMS)}"
    parser.add_argument("--impl", nargs="+", metavar="IMPL", help=help_)
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="CPU threads of each process (default: 1; for a GPU 8)"
    )


def add_workload(parser: argparse.ArgumentParser) -> None:
    """Which models, at which sizes."""
    model = parser.add_argument_group("model")
    model.add_argument("--model", nargs="+", metavar="NAME", help="names of models (default: small-llama)")
    model.add_argument("--list-models", action="store_true", help="list the names and stop")
    model.add_argument(
        "--layers", type=positive, nargs="+", metavar="N", help="number of layers; several are measured each"
    )
    for name, help_ in COMMON.items():
        model.add_argument(f"--{name}", type=positive, metavar="N", help=help_)
    model.add_argument("--override", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the model's config")
    work = parser.add_argument_group("work")
    work.add_argument(
        "--batch",
        type=positive,
        metavar="N",
        help="sequences or images of a step (default: 4 on a GPU, 2; inference: 1)",
    )
    work.add_argument(
        "--sequence",
        type=positive,
        metavar="N",
        help="tokens of each (default: 2048 on a GPU, inference 1024; 64 on a CPU)",
    )
    work.add_argument(
        "--precision",
        nargs="+",
        choices=PRECISIONS,
        metavar="NAME",
        help=f"{', '.join(PRECISIONS)} (default: bf16-true on a GPU, else float32)",
    )
    work.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: auto")
    work.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help="of training (default: adamw, fused)")
    work.add_argument("--loss", choices=LOSSES, default="inside",
                      help="of training: in the program that is compiled, or by PyTorch (default: inside)")  # fmt: skip


def add_comparison(parser: argparse.ArgumentParser) -> None:
    """How often and in which order all is run."""
    runs = parser.add_argument_group("runs")
    runs.add_argument(
        "--steps", type=positive, metavar="N", help="steps of each run, of which the last half, at most 20, are timed"
    )
    runs.add_argument(
        "--rounds", type=positive, metavar="N", default=1, help="run everything anew this often (default: 1)"
    )
    runs.add_argument("--turns", type=natural, metavar="N",
                      help="on a CPU, all processes of a round take turns, this many each; 0: one after the other "
                      "(default: 40)")  # fmt: skip
    runs.add_argument("--cache", choices=CACHES, default="cold", help="caches of compiled code on disk (default: cold)")
    runs.add_argument("--noise", type=natural, default=2, metavar="N",
                      help="eager runs with other kernels, to judge losses by (default: 2)")  # fmt: skip


def add_profile(parser: argparse.ArgumentParser) -> None:
    """What is profiled, and what is told of it."""
    runs = parser.add_argument_group("profile")
    runs.add_argument("--steps", type=positive, metavar="N", default=16, help="steps that are timed (default: 16)")
    runs.add_argument("--together", action="store_true",
                      help="all compile at the same time, then one after the other is measured; first steps are not "
                      "told (default: one process after the other)")  # fmt: skip
    runs.add_argument("--kernels", type=natural, metavar="N", default=12,
                      help="list the N longest of each implementation (default: 12; 0: none)")  # fmt: skip
    runs.add_argument("--folder", type=Path, metavar="DIR",
                      help="write all kernels of each implementation there, and what thunder.explain says")  # fmt: skip


def workloads(options: argparse.Namespace, tasks: list[str], device: str) -> list[Workload]:
    """All combinations that the options ask for, on a device.

    Raises:
        UnknownModel: there is no such model, or it has no such setting.
        ValueError: a setting cannot be read.
    """
    from benchmarks.models.catalogue import check
    from benchmarks.models.own import WITHOUT_TOKENS

    models = [check(name) for name in options.model or ["small-llama"]]
    fixed = {name: getattr(options, name) for name in COMMON if getattr(options, name)}
    overridden = dict(map(_setting, options.override))
    fixed |= overridden
    depths: list[dict[str, Any]] = [{"layers": count} for count in options.layers or []] or [{}]
    for model, depth in itertools.product(models, depths[:1]):
        _check_settings(model, fixed | depth, overridden)
    precisions = options.precision or [PRECISION[device]]
    found = []
    for model, task, precision, depth in itertools.product(models, tasks, precisions, depths):
        batch, sequence = SHAPES[device, "training" if task == "training" else "other"]
        length = 0 if model in WITHOUT_TOKENS else options.sequence or sequence
        sizes = {"batch": options.batch or batch, "sequence": length, "steps": options.steps}
        common = {"optimizer": options.optimizer, "loss": options.loss, "overrides": fixed | depth}
        found.append(Workload(model, task, precision, device, **sizes, **common))
    return found


def _check_settings(model: str, settings: dict[str, Any], overridden: Collection[str]) -> None:
    """Raise UnknownModel now for what the first process would find, with the option that gave it."""
    from benchmarks.models.catalogue import check_setting
    from benchmarks.models.subject import UnknownModel

    for name, value in settings.items():
        try:
            check_setting(model, name, value)
        except UnknownModel as error:
            raise UnknownModel(f"--{'override' if name in overridden else name}: {error}") from error


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if not name or not value.strip():
        raise ValueError(f"--override takes NAME=VALUE, not {text!r}; null is no value, and text may be quoted")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        what = getattr(error, "problem", None) or "it cannot be read"
        raise ValueError(f"--override takes NAME=VALUE with a value in YAML, not {text!r}: {what}") from error
