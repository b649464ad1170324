"""Small programs and what they compute, with and without eight bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_plugin_te import conditions
from thunder_plugin_te.executor import TeExecutor
from thunder_plugin_te.options import TeOptions

SMALL = {"least_features": 16, "least_tokens": 16}
RECIPES = ("current", "delayed", "block")


class Gated(nn.Module):
    """A gated layer: two that read one input, and one after them."""

    def __init__(self, size: int = 32, inner: int = 48, bias: bool = False) -> None:
        super().__init__()
        self.gate = nn.Linear(size, inner, bias=bias, dtype=torch.bfloat16)
        self.up = nn.Linear(size, inner, bias=bias, dtype=torch.bfloat16)
        self.down = nn.Linear(inner, size, bias=bias, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Checkpointed(nn.Module):
    """The same computed again in backward, between two layers that are not."""

    def __init__(self, inner: Gated) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x.sin(), use_reentrant=False).cos()


class Plain(Checkpointed):
    """Without."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.sin()).cos()


class OnAnyDevice(TeExecutor):
    """Takes tensors on the CPU as well, which the fake library works on."""

    def _check(self, *tensors: Any, **kwargs: Any) -> bool | str:
        with patch.object(conditions, "device_refusal", lambda device, recipe: None):
            return super()._check(*tensors, **kwargs)


def executor(recipe: str = "current", **options: Any) -> TeExecutor:
    """For small layers."""
    return OnAnyDevice(TeOptions(recipe=recipe, **{**SMALL, **options}))  # type: ignore[arg-type]


def compiled(program: Any, recipe: str = "current", **options: Any) -> Any:
    """The program, compiled with the executor."""
    return thunder.jit(program, executors=[executor(recipe, **options)])


def values(*shape: int, seed: int = 0, grad: bool = False) -> torch.Tensor:
    """Of bfloat16, the same for equal arguments."""
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()
    return made.requires_grad_(grad)


def step(program: Callable[..., torch.Tensor], module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Result and gradients of input and parameters."""
    for tensor in (x, *module.parameters()):
        tensor.grad = None
    result = program(x)
    result.float().square().sum().backward()
    return [result.detach(), *[t.grad for t in (x, *module.parameters()) if t.grad is not None]]


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Norm of the difference over that of ``expected``."""
    actual, expected = actual.detach().float(), expected.detach().float()
    return float((actual - expected).norm() / expected.norm())
