"""Tasks that run a model step by step: training, forward calls, prefill, decoding and generation of text."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from torch.nn import functional

from benchmarks import sources
from benchmarks.implementations import MODES, compile_with, jit_options
from benchmarks.models import catalogue
from benchmarks.models.model import BenchmarkModel, Input, Integers, Tokens, UnknownModel
from benchmarks.workload import Workload

SPARE = 12
"""Steps beyond the workload's, for separate measurements of host time and memory."""

DISTINCT = 4
"""Number of different batches of a model whose first input is not tokens: images of all steps would take gigabytes."""


class Batch(NamedTuple):
    """The first input of a model, its targets, and further inputs by name."""

    inputs: torch.Tensor
    targets: torch.Tensor
    more: dict[str, torch.Tensor]


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

    def compile(self, implementation: str) -> Callable[..., Any]:
        """What `step` takes, compiled by an implementation."""
        ...

    def step(self, compiled: Callable[..., Any], index: int) -> torch.Tensor:
        """Run step number ``index`` and return a result that `loss` accepts."""
        ...

    def loss(self, result: torch.Tensor, index: int) -> torch.Tensor:
        """A scalar on the device, for comparing the step's result with that of other implementations."""
        ...


class _Compiled:
    """A task whose program is called in its steps."""

    program: nn.Module

    def compile(self, implementation: str) -> Callable[..., Any]:
        """The program, compiled by an implementation."""
        return compile_with(implementation, self.program)


class WithLoss(nn.Module):
    """A model and its loss as one program: ``(inputs, targets, **more) -> loss``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor, **more: torch.Tensor) -> torch.Tensor:
        """The loss of the model's predictions, see `loss_of`."""
        return loss_of(self.model(inputs, **more), targets)


class Training(_Compiled):
    """Forward, backward and, unless the workload has none, the optimizer's step."""

    def __init__(self, workload: Workload) -> None:
        model = model_of(workload)
        self.inside = workload.loss == "inside"
        self.program = (WithLoss(model.module) if self.inside else model.module).train()
        self.batches = batches(workload.steps + SPARE, model, workload)
        self.items = items_of(model, workload, self.batches[0])
        self.compared = workload.steps
        self.autocast = functools.partial(autocast_of, workload)
        self.optimizer = _optimizer(workload.optimizer, self.program)

    def step(self, compiled: Callable[..., Any], index: int) -> torch.Tensor:
        """The loss of the batch, before the optimizer's step."""
        with self.autocast():
            loss = self._loss(compiled, self.batches[index])
        loss.backward()
        if self.optimizer:
            self.optimizer.step()
        self.program.zero_grad()
        return loss.detach()

    def _loss(self, compiled: Callable[..., Any], batch: Batch) -> torch.Tensor:
        if not self.inside:
            return loss_of(compiled(batch.inputs, **batch.more), batch.targets)
        loss: torch.Tensor = compiled(batch.inputs, batch.targets, **batch.more)
        return loss

    def loss(self, result: torch.Tensor, index: int) -> torch.Tensor:
        """A copy of the loss, because CUDA graphs overwrite the same memory in each step."""
        return result.clone()


class Prefill(_Compiled):
    """A forward call without gradients on whole sequences, which for ``prefill`` fills the KV cache of a model."""

    def __init__(self, workload: Workload) -> None:
        model = model_of(workload)
        self.program = model.module.eval()
        self.batches = batches(workload.steps + SPARE, model, workload)
        self.items = items_of(model, workload, self.batches[0])
        self.compared = workload.steps - workload.timed
        self.autocast = functools.partial(autocast_of, workload)
        self.positions: tuple[torch.Tensor, ...] = ()
        if model.cached and workload.task == "prefill":
            _set_cache(model.module, workload, workload.sequence)
            self.positions = (torch.arange(workload.sequence, device=workload.device),)

    def step(self, compiled: Callable[..., Any], index: int) -> Any:
        """The model's output."""
        with torch.no_grad(), self.autocast():
            return compiled(self.batches[index].inputs, *self.positions, **self.batches[index].more)

    def loss(self, result: Any, index: int) -> torch.Tensor:
        """The loss of the predictions, see `loss_of`."""
        return loss_of(result, self.batches[index].targets)


class Decode(_Compiled):
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
        return loss_of(result, self.targets[:, self.prompt + index])


class Generation:
    """Greedy generation of text by a model of Transformers: each step continues the same prompt by ``new_tokens``.

    Raises:
        UnknownModel: the model has no method ``generate``.
    """

    def __init__(self, workload: Workload) -> None:
        model = model_of(workload)
        if not hasattr(model.module, "generate") or not isinstance(model.input, Tokens):
            raise UnknownModel(f"generation needs a model of Transformers that generates text; not {workload.model}")
        self.program: Any = model.module.eval()
        self.eager = self.program.forward
        self.prompt = batches(1, model, workload)[0].inputs
        self.items = workload.batch * workload.new_tokens
        self.compared = workload.steps - workload.timed
        self.autocast = functools.partial(autocast_of, workload)
        count, static = workload.new_tokens, workload.kv_cache == "static"
        self.options: dict[str, Any] = {
            "attention_mask": torch.ones_like(self.prompt),
            "max_new_tokens": count,
            "min_new_tokens": count,
            "do_sample": False,
            "use_cache": True,
            "cache_implementation": "static" if static else None,
            "disable_compile": True,
        }

    def compile(self, implementation: str) -> Any:
        """The compiled module for Thunder; else the module, which torch.compile compiles in a way that suits the cache.

        With a static cache Transformers compiles the decoding itself; a growing one needs symbolic sizes.
        """
        if jit_options(implementation) is not None:
            return compile_with(implementation, self.program)
        if implementation in MODES and self.options["cache_implementation"]:
            from transformers import CompileConfig

            self.options |= {"disable_compile": False, "compile_config": CompileConfig(mode=MODES[implementation])}
            self.options["compile_config"]._compile_all_devices = True
        else:
            self.program.forward = compile_with(implementation, self.eager, dynamic=None)
        return self.program

    def step(self, compiled: Any, index: int) -> torch.Tensor:
        """Tokens ``(batch, sequence + new_tokens)``, the prompt included."""
        with torch.no_grad(), self.autocast():
            tokens: torch.Tensor = compiled.generate(self.prompt, **self.options)
        return tokens

    def loss(self, result: torch.Tensor, index: int) -> torch.Tensor:
        """The cross entropy of the generated tokens with eager's predictions for them.

        It is near that of eager's own tokens, the most likely ones, even if two tokens were so near to each other that
        rounding has chosen the other one and all later tokens differ.
        """
        start = self.prompt.shape[1]
        with torch.no_grad(), self.autocast():
            logits = predictions(self.eager(result[:, :-1], use_cache=False))
        return loss_of(logits[:, start - 1 :], result[:, start:])


TASKS: dict[str, Callable[[Workload], Task]] = {
    "training": Training,
    "forward": Prefill,
    "prefill": Prefill,
    "decode": Decode,
    "generation": Generation,
}
"""The classes by the names of `Workload`."""


def loss_of(output: Any, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy with class indices, one for each prediction; the mean squared error of numbers."""
    predicted = predictions(output)
    if targets.is_floating_point():
        return functional.mse_loss(predicted.float(), targets.float())
    return functional.cross_entropy(predicted.flatten(0, -2), targets.flatten())


def predictions(output: Any) -> torch.Tensor:
    """The predictions in a model's output, with classes as the last dimension.

    The output is a tensor, has an attribute ``logits`` (Transformers, torchvision's GoogLeNet) or ``sample``
    (diffusers), or is torchvision's dict for segmentation, whose entry ``out`` has classes as its second dimension.
    """
    if isinstance(output, torch.Tensor):
        return output
    for name in ("logits", "sample"):
        predicted: torch.Tensor | None = getattr(output, name, None)
        if predicted is not None:
            return predicted
    pixels: torch.Tensor = output["out"]
    return pixels.movedim(1, -1)


def items_of(model: BenchmarkModel, workload: Workload, batch: Batch) -> int:
    """Tokens of a batch of a language model, of the targets; else samples."""
    return batch.targets.numel() if _tokens(model) else workload.batch


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
    """Batches on the workload's device, the same in each process.

    Tokens are bytes of this repository's documents from random offsets, and targets the bytes after them. If the first
    input is not tokens, `DISTINCT` batches are repeated.
    """
    generator = torch.Generator().manual_seed(0)
    distinct = count if isinstance(model.input, Tokens) else min(count, DISTINCT)
    made = [_batch(model, workload, generator) for _ in range(distinct)]
    return list(itertools.islice(itertools.cycle(made), count))


def _batch(model: BenchmarkModel, workload: Workload, generator: torch.Generator) -> Batch:
    texts: list[torch.Tensor] = []

    def make(kind: Input) -> torch.Tensor:
        if isinstance(kind, Tokens):
            texts.append(_text(workload, workload.sequence // kind.divisor + 1, model.classes, generator))
            return texts[-1][:, :-1].contiguous()
        if isinstance(kind, Integers):
            return torch.randint(kind.limit, (workload.batch,), generator=generator)
        dtype = torch.bfloat16 if workload.precision == "bf16-true" else torch.float32
        return torch.randn(workload.batch, *kind.shape, generator=generator).to(dtype)

    inputs = make(model.input)
    more = {name: make(kind) for name, kind in model.more.items()}
    if texts:
        targets = texts[-1][:, 1:].contiguous()
    elif model.classes:
        targets = torch.randint(model.classes, (workload.batch, *model.positions), generator=generator)
    else:
        targets = torch.randn(inputs.shape, generator=generator).to(inputs.dtype)
    device = workload.device
    return Batch(inputs.to(device), targets.to(device), {name: value.to(device) for name, value in more.items()})


def _tokens(model: BenchmarkModel) -> bool:
    return any(isinstance(kind, Tokens) for kind in (model.input, *model.more.values()))


def _text(workload: Workload, length: int, vocabulary: int, generator: torch.Generator) -> torch.Tensor:
    """Bytes ``(batch, length)`` of the documents, from random offsets."""
    text = documents(length) % vocabulary
    starts = torch.randint(len(text) - length + 1, (workload.batch, 1), generator=generator)
    return text[starts + torch.arange(length)]


def documents(least: int) -> torch.Tensor:
    """The bytes of this repository's documents as integers, repeated to more than ``least`` elements."""
    text = torch.tensor(list(b"".join(path.read_bytes() for path in sources.documents())))
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
