"""A training step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.batches import batches
from benchmarks.task import SPARE, autocast_of, cross_entropy, subject_of
from benchmarks.workload import Workload


class WithLoss(nn.Module):
    """A model and its loss: ``(inputs, targets) -> loss``, so that the loss is part of the program."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy of the model's predictions; ``targets`` are classes, one for each prediction."""
        return cross_entropy(self.model(inputs), targets)


class Training:
    """Forward, backward and, if there is one, the optimizer's step."""

    def __init__(self, workload: Workload) -> None:
        subject = subject_of(workload)
        self.inside = workload.loss == "inside"
        self.program = (WithLoss(subject.module) if self.inside else subject.module).train()
        self.batches = batches(workload.steps + SPARE, subject, workload)
        self.items = self.batches[0][1].numel()
        self.compared = workload.steps
        self.autocast = functools.partial(autocast_of, workload)
        self.optimizer = _optimizer(workload.optimizer, self.program)

    def step(self, compiled: Callable[..., Any], index: int) -> torch.Tensor:
        """The loss of the step's batch, before the step."""
        with self.autocast():
            loss = self._loss(compiled, *self.batches[index])
        loss.backward()
        if self.optimizer:
            self.optimizer.step()
        self.program.zero_grad()
        return loss.detach()

    def _loss(self, compiled: Callable[..., Any], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if not self.inside:
            return cross_entropy(compiled(inputs), targets)
        loss: torch.Tensor = compiled(inputs, targets)
        return loss

    def loss(self, result: torch.Tensor, index: int) -> torch.Tensor:
        """The loss; a copy, because CUDA graphs write to the same memory in each step."""
        return result.clone()


def _optimizer(name: str, module: nn.Module) -> torch.optim.Optimizer | None:
    if name == "none":
        return None
    if name == "sgd":
        return torch.optim.SGD(module.parameters(), lr=1e-3, fused=True)
    return torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)
