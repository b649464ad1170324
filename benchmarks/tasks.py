"""Tasks that run a model step by step: training, prefill and decoding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models import catalogue
from benchmarks.models.model import BenchmarkModel, UnknownModel
from benchmarks.process import ROOT
from benchmarks.workload import Workload

SPARE = 12
"""Steps beyond the workload's, for separate measurements of host time and memory."""

Batch = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets."""


class Task(Protocol):
    """A workload with its model and data.

    Attributes:
        program: the module to compile.
        items: tokens or samples per step.
        compared: number of first steps whose loss is compared with eager's. A task whose loss is extra work excludes
            the timed steps.
    """

    program: nn.Module
    items: int
    compared: int

    def step(self, compiled: Callable[..., Any], index: int) -> torch.Tensor:
        """Run step number ``index`` and return a result that `loss` accepts."""
        ...

    def loss(self, result: torch.Tensor, index: int) -> torch.Tensor:
        """A scalar on the device, for comparing the step's result with that of other implementations."""
        ...


class WithLoss(nn.Module):
    """A model and its loss as one program: ``(inputs, targets) -> loss``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy of the model's logits; ``targets`` has one class index for each prediction."""
        return cross_entropy(self.model(inputs), targets)


class Training:
    """Forward, backward and, unless the workload has none, the optimizer's step."""

    def __init__(self, workload: Workload) -> None:
        model = model_of(workload)
        self.inside = workload.loss == "inside"
        self.program = (WithLoss(model.module) if self.inside else model.module).train()
        self.batches = batches(workload.steps + SPARE, model, workload)
        self.items = self.batches[0][1].numel()
        self.compared = workload.steps
        self.autocast = functools.partial(autocast_of, workload)
        self.optimizer = _optimizer(workload.optimizer, self.program)

    def step(self, compiled: Callable[..., Any], index: int) -> torch.Tensor:
        """The loss of the batch, before the optimizer's step."""
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
        """A copy of the loss, because CUDA graphs overwrite the same memory in each step."""
        return result.clone()


class Prefill:
    """A forward call without gradients on whole sequences. It fills the KV cache of a model that has one."""

    def __init__(self, workload: Workload) -> None:
        model = model_of(workload)
        self.program = model.module.eval()
        self.batches = batches(workload.steps + SPARE, model, workload)
        self.items = self.batches[0][1].numel()
        self.compared = workload.steps - workload.timed
        self.autocast = functools.partial(autocast_of, workload)
        self.positions: tuple[torch.Tensor, ...] = ()
        if model.cached:
            _set_cache(model.module, workload, workload.sequence)
            self.positions = (torch.arange(workload.sequence, device=workload.device),)

    def step(self, compiled: Callable[..., Any], index: int) -> Any:
        """The model's output."""
        with torch.no_grad(), self.autocast():
            return compiled(self.batches[index][0], *self.positions)

    def loss(self, result: Any, index: int) -> torch.Tensor:
        """The cross entropy with the following tokens."""
        return cross_entropy(result, self.batches[index][1])


class Decode:
    """Decoding of one token per step with a KV cache. Each step gets the next token of a text, not a prediction.

    Raises:
        UnknownModel: the model has no KV cache.
    """

    def __init__(self, workload: Workload) -> None:
        model = model_of(workload)
        if not model.cached:
            raise UnknownModel(f"decode needs a KV cache, which LitGPT's models have; {workload.model} has none")
        self.program = model.module.eval()
        length = workload.sequence + workload.steps + SPARE
        _set_cache(model.module, workload, length)
        text = (documents(length + 1) % model.classes)[: length + 1].expand(workload.batch, -1).to(workload.device)
        self.inputs, self.targets = text[:, :-1], text[:, 1:]
        self.items = workload.batch
        self.compared = workload.steps - workload.timed
        self.autocast = functools.partial(autocast_of, workload)
        # The same tensors in each step: CUDA graphs need constant addresses.
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
        """The cross entropy with the following token."""
        return cross_entropy(result, self.targets[:, self.prompt + index])


def cross_entropy(output: Any, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of logits ``(..., classes)``, or of an object with an attribute ``logits``."""
    logits = output if isinstance(output, torch.Tensor) else output.logits
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def model_of(workload: Workload) -> BenchmarkModel:
    """The workload's model on its device, with the same weights in each process."""
    torch.manual_seed(0)
    with torch.device(workload.device):
        model = catalogue.make(workload.model, workload.overrides)
    if workload.precision == "bf16-true":
        model.module.to(torch.bfloat16)
    return model


def autocast_of(workload: Workload) -> torch.autocast:
    """The autocast context of the workload's precision; disabled except for ``bf16-autocast``."""
    return torch.autocast(workload.device, torch.bfloat16, enabled=workload.precision == "bf16-autocast")


def batches(count: int, model: BenchmarkModel, workload: Workload) -> list[Batch]:
    """Inputs and targets on the workload's device, the same in each process.

    For a language model both are ``(batch, sequence)``: bytes of this repository's documents from random offsets, and
    the byte after each. For other models the inputs are ``(batch, *shape)``, normally distributed, in the dtype of the
    weights, and the targets are random classes.
    """
    generator = torch.Generator().manual_seed(0)
    if model.shape is None:
        text = documents(workload.sequence + 1) % model.classes
        starts = torch.randint(len(text) - workload.sequence, (count, workload.batch, 1), generator=generator)
        places = starts + torch.arange(workload.sequence)
        return [(text[place].to(workload.device), text[place + 1].to(workload.device)) for place in places]
    dtype = torch.bfloat16 if workload.precision == "bf16-true" else torch.float32
    images = torch.randn(count, workload.batch, *model.shape, generator=generator)
    targets = torch.randint(model.classes, (count, workload.batch), generator=generator)
    return [(image.to(workload.device, dtype), target.to(workload.device)) for image, target in zip(images, targets)]


def documents(least: int) -> torch.Tensor:
    """The bytes of this repository's documents as integers, repeated to more than ``least`` elements."""
    paths = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = torch.tensor(list(b"".join(path.read_bytes() for path in paths)))
    return text.repeat(least // len(text) + 1)


def _optimizer(name: str, module: nn.Module) -> torch.optim.Optimizer | None:
    if name == "none":
        return None
    if name == "sgd":
        return torch.optim.SGD(module.parameters(), lr=1e-3, fused=True)
    return torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)


def _set_cache(module: Any, workload: Workload, length: int) -> None:
    module.max_seq_length = length
    dtype = torch.float32 if workload.precision == "float32" else torch.bfloat16
    module.set_kv_cache(batch_size=workload.batch, device=torch.device(workload.device), dtype=dtype)
