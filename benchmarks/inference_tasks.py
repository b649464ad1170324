"""Inference: whole sequences, and one token after another."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.batches import batches, documents
from benchmarks.models.subject import UnknownModel
from benchmarks.task import SPARE, autocast_of, cross_entropy, subject_of
from benchmarks.workload import Workload


class Prefill:
    """A forward call without gradients on whole sequences."""

    def __init__(self, workload: Workload) -> None:
        subject = subject_of(workload)
        self.program = subject.module.eval()
        self.batches = batches(workload.steps + SPARE, subject, workload)
        self.items = self.batches[0][1].numel()
        self.compared = workload.steps - workload.timed
        self.autocast = functools.partial(autocast_of, workload)
        self.more: tuple[torch.Tensor, ...] = ()
        if subject.cached:
            _set_cache(subject.module, workload, workload.sequence)
            self.more = (torch.arange(workload.sequence, device=workload.device),)

    def step(self, compiled: Callable[..., Any], index: int) -> Any:
        """The model's output."""
        with torch.no_grad(), self.autocast():
            return compiled(self.batches[index][0], *self.more)

    def loss(self, result: Any, index: int) -> torch.Tensor:
        """The cross entropy with the tokens that follow."""
        return cross_entropy(result, self.batches[index][1])


class Decode:
    """One token after another, with the KV cache; each step is given the text's next token, not its own prediction."""

    def __init__(self, workload: Workload) -> None:
        subject = subject_of(workload)
        if not subject.cached:
            raise UnknownModel(f"decode needs a KV cache, as LitGPT's models have it; {workload.model} has none")
        self.program = subject.module.eval()
        length = workload.sequence + workload.steps + SPARE
        _set_cache(subject.module, workload, length)
        text = (documents(length + 1) % subject.classes)[: length + 1].expand(workload.batch, -1).to(workload.device)
        self.inputs, self.targets = text[:, :-1], text[:, 1:]
        self.items = workload.batch
        self.compared = workload.steps - workload.timed
        self.autocast = functools.partial(autocast_of, workload)
        # They stay where they are, as programs that are replayed by CUDA graphs like it.
        self.token = self.inputs[:, :1].clone()
        self.position = torch.zeros(1, dtype=torch.int64, device=workload.device)
        self.prompt = workload.sequence
        with torch.no_grad(), self.autocast():
            self.program(self.inputs[:, : self.prompt], torch.arange(self.prompt, device=workload.device))

    def step(self, compiled: Callable[..., Any], index: int) -> torch.Tensor:
        """Logits ``(batch, 1, vocabulary)``."""
        place = self.prompt + index
        self.token.copy_(self.inputs[:, place : place + 1])
        self.position.fill_(place)
        with torch.no_grad(), self.autocast():
            return compiled(self.token, self.position)

    def loss(self, result: torch.Tensor, index: int) -> torch.Tensor:
        """The cross entropy with the token that follows."""
        return cross_entropy(result, self.targets[:, self.prompt + index])


def _set_cache(model: Any, workload: Workload, length: int) -> None:
    model.max_seq_length = length
    dtype = torch.float32 if workload.precision == "float32" else torch.bfloat16
    model.set_kv_cache(batch_size=workload.batch, device=torch.device(workload.device), dtype=dtype)
