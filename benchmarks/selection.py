"""The device, workloads and implementations that the command line selects."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import machine, options
from benchmarks.availability import unavailable
from benchmarks.implementations import COMPARED, checked
from benchmarks.models.model import UnknownModel
from benchmarks.process import ChildFailed, in_fresh_process
from benchmarks.row import BEST
from benchmarks.workload import Workload


class InvalidOptions(ValueError):
    """The options contradict each other or name something that is unknown or unavailable."""


class Selection(NamedTuple):
    """What a command measures.

    Attributes:
        device: see `machine.device`.
        workloads: every combination of the selected models, tasks and sizes.
        names: the implementations that can run on this machine.
        unavailable: for each other implementation, the reason why it cannot run.
        threads: number of CPU threads of each process.
    """

    device: dict[str, Any]
    workloads: list[Workload]
    names: list[str]
    unavailable: dict[str, str]
    threads: int


def select(chosen: argparse.Namespace) -> Selection:
    """The selection of parsed command line options.

    Raises:
        InvalidOptions: the options contradict each other or name something that is unknown or unavailable.
    """
    device = device_of(chosen.device)
    try:
        workloads = options.workloads(chosen, chosen.tasks, device["type"])
    except (UnknownModel, ModuleNotFoundError, ValueError) as error:
        raise InvalidOptions(str(error)) from error
    names, messages = implementations(chosen, device["type"], COMPARED)
    return Selection(device, workloads, names, messages, chosen.threads or options.THREADS[device["type"]])


def implementations(
    chosen: argparse.Namespace, device: str, default: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The selected implementations that can run on this machine, and the reasons why others cannot.

    Raises:
        InvalidOptions: none can run, or the baseline is not among them.
    """
    names = checked(chosen.impl or default)
    reasons = unavailable(names, device)
    names = [name for name in names if name not in reasons]
    if not names:
        raise InvalidOptions("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    if chosen.baseline and chosen.baseline not in (*names, BEST):
        raise InvalidOptions(f"--baseline {chosen.baseline} is not among the implementations: {', '.join(names)}")
    return names, {name: f"not available: {reason}" for name, reason in reasons.items()}


def device_of(name: str) -> dict[str, Any]:
    """The device that ``--device`` selects, see `machine.device`. Raises `InvalidOptions` if it is not available."""
    if name == "cpu":
        return machine.device(name)
    try:
        return in_fresh_process(machine.device, threads=1, name=name)
    except ChildFailed as error:
        raise InvalidOptions(str(error).splitlines()[-1]) from error
