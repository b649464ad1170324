"""What is done with a model, in steps: what all tasks have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import catalogue
from benchmarks.models.subject import Subject
from benchmarks.workload import Workload

SPARE = 12
"""Calls beyond the workload's steps, for what is measured apart: time of the host, and memory."""


class Task(Protocol):
    """A workload made ready.

    Attributes:
        program: what is to be compiled.
        items: tokens or samples of one step.
        compared: of the first steps the loss is computed, and nothing is timed meanwhile if that is extra work.
    """

    program: nn.Module
    items: int
    compared: int

    def step(self, compiled: Callable[..., Any], index: int) -> torch.Tensor:
        """Step number ``index``; the result is what `loss` takes."""
        ...

    def loss(self, result: torch.Tensor, index: int) -> torch.Tensor:
        """A scalar that tells this step's result from another's; it stays on the device."""
        ...


def cross_entropy(output: Any, targets: torch.Tensor) -> torch.Tensor:
    """Of logits ``(..., classes)``, or of an object that has them as ``logits``."""
    logits = output if isinstance(output, torch.Tensor) else output.logits
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def subject_of(workload: Workload) -> Subject:
    """The workload's model on its device; its weights are the same each time."""
    torch.manual_seed(0)
    with torch.device(workload.device):
        subject = catalogue.make(workload.model, workload.overrides)
    if workload.precision == "bf16-true":
        subject.module.to(torch.bfloat16)
    return subject


def autocast_of(workload: Workload) -> torch.autocast:
    """The context that the workload's precision asks for."""
    return torch.autocast(workload.device, torch.bfloat16, enabled=workload.precision == "bf16-autocast")
