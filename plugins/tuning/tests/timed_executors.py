"""Plugins with an executor each, whose kernels compute with PyTorch and spend milliseconds of a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional as F

from thunder_core.executors import Claim, DerivativePair, Executor, OperatorExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_core.plugins import ExecutorSpec, hookimpl
from thunder_core.symbols import recorded
from thunder_fusion import FusionExecutor
from thunder_plugin_tuning.clock import Clock


class VirtualClock(Clock):
    """A clock that stands still except for `spend`."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def spend(self, milliseconds: float) -> None:
        self.time += milliseconds / 1e3


CLOCK = VirtualClock()


@recorded
def silu(x: torch.Tensor) -> torch.Tensor:
    CLOCK.spend(3)
    return F.silu(x)


@recorded
def tanh(x: torch.Tensor) -> torch.Tensor:
    CLOCK.spend(2)
    return torch.tanh(x)


@recorded
def gelu(x: torch.Tensor) -> torch.Tensor:
    CLOCK.spend(1)
    return F.gelu(x)


OPERATIONS = {silu: F.silu, tanh: torch.tanh, gelu: F.gelu}


def timed(
    operation: Callable[..., Any], milliseconds: float, result: Callable[[Any], Any] = lambda value: value
) -> Claim:
    """A claim of an operation whose kernel takes this long, and changes the result."""
    function = OPERATIONS[operation]

    def run(x: torch.Tensor) -> torch.Tensor:
        CLOCK.spend(milliseconds)
        return result(function(x))

    return Claim(operation, run=run)


def fail(value: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no kernel image\nis available")


def forward(x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    CLOCK.spend(1)
    return torch.tanh(x), (x,)


def backward(residuals: Any, cotangents: Any, wanted: Any) -> tuple[torch.Tensor]:
    CLOCK.spend(0.5)
    return (cotangents[0] * (1 - torch.tanh(residuals[0]).square()),)


def wrong_backward(residuals: Any, cotangents: Any, wanted: Any) -> tuple[torch.Tensor]:
    CLOCK.spend(0.1)
    return (cotangents[0] * (1 - torch.tanh(residuals[0])),)


class Fuser(FusionExecutor):
    """Fuses these operations. A region takes 0.25 ms, and 4 ms with a `gelu`."""

    name = "fuser"
    smallest = 1

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        return bound.symbol.target in OPERATIONS or "it is no activation"

    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]]:
        run = compile_trace(region)
        milliseconds = 4.0 if any(op.symbol.target is gelu for op in region.symbols) else 0.25

        def call(*inputs: Any) -> Any:
            start = CLOCK.time
            outputs = run(*inputs)
            CLOCK.time = start + milliseconds / 1e3
            return outputs

        return call


def operators(name: str, *claims: Claim) -> Executor:
    return OperatorExecutor(name, claims)


EXECUTORS: Mapping[str, Executor] = {
    "quick": operators("quick", timed(silu, 1), timed(tanh, 4)),
    "wrong": operators("wrong", timed(tanh, 0.1, lambda value: value + 0.01)),
    "failing": operators("failing", timed(gelu, 0.1, fail)),
    "idle": operators("idle", Claim(F.softmax, run=F.softmax)),
    "pairs": operators("pairs", Claim(torch.tanh, derivative=DerivativePair(forward, backward))),
    "bad_pairs": operators("bad_pairs", Claim(torch.tanh, derivative=DerivativePair(forward, wrong_backward))),
    "fuser": Fuser(),
}
NAMES = tuple(EXECUTORS)


class _Plugin:
    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def thunder_executors(self) -> list[ExecutorSpec]:
        return [ExecutorSpec(self.name, f"timed_executors:MAKERS.{self.name}")]


PLUGINS = SimpleNamespace(**{name: _Plugin(name) for name in NAMES})
MAKERS = SimpleNamespace(**{name: lambda options, name=name: EXECUTORS[name] for name in NAMES})


def activations(x: torch.Tensor) -> torch.Tensor:
    """It takes 6 ms."""
    return gelu(tanh(silu(x)))


class Network(torch.nn.Module):
    """A layer with state that is written, random numbers, and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.dropout(self.norm(x), 0.5))
