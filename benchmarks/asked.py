"""What the options of a command about models ask for."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from benchmarks import machine, options
from benchmarks.availability import unavailable
from benchmarks.implementations import COMPARED, checked
from benchmarks.models.subject import UnknownModel
from benchmarks.process import ChildFailed, in_fresh_process
from benchmarks.workload import Workload


class Refused(ValueError):
    """The options do not go together, or ask for what is not there."""


class Asked(NamedTuple):
    """What is to be measured.

    Attributes:
        device: see `machine.device`.
        workloads: all of them.
        names: the implementations that can run here.
        absent: why the others cannot.
        threads: of each process.
    """

    device: dict[str, Any]
    workloads: list[Workload]
    names: list[str]
    absent: dict[str, str]
    threads: int


def asked_of(chosen: argparse.Namespace) -> Asked:
    """What the options ask for.

    Raises:
        Refused: they do not go together, or name what is not there.
    """
    device = device_of(chosen.device)
    try:
        workloads = options.workloads(chosen, chosen.tasks, device["type"])
    except (UnknownModel, ModuleNotFoundError, ValueError) as error:
        raise Refused(str(error)) from error
    names = checked(chosen.impl or COMPARED)
    absent = unavailable(names, device["type"])
    names = [name for name in names if name not in absent]
    if not names:
        raise Refused("; ".join(f"{name}: {reason}" for name, reason in absent.items()))
    if chosen.baseline and chosen.baseline not in names:
        raise Refused(f"--baseline {chosen.baseline} is not among the implementations: {', '.join(names)}")
    told = {name: f"not available: {reason}" for name, reason in absent.items()}
    return Asked(device, workloads, names, told, chosen.threads or options.THREADS[device["type"]])


def device_of(asked: str) -> dict[str, Any]:
    """What ``--device`` means here. Raises Refused if there is none."""
    if asked == "cpu":
        return machine.device(asked)
    try:
        return in_fresh_process(machine.device, threads=1, asked=asked)
    except ChildFailed as error:
        raise Refused(str(error).splitlines()[-1]) from error
