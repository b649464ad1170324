"""Programs of a few lines that spell composites out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import thunder
import thunder_plugin_composites as composites
from thunder_core.executors import OperatorExecutor
from thunder_testing.by_definition import by_definition, run_by

B, T, K = 2, 4, 8


def executor(*names: str, **options: Any) -> OperatorExecutor:
    """An executor of these composites; of all of them without names."""
    return by_definition(*[getattr(composites, name) for name in names or composites.__all__], **options)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype).requires_grad_()


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    n = x.float()
    return (n * torch.rsqrt(torch.mean(n * n, -1, keepdim=True) + 1e-5) * weight.float()).to(x.dtype)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    x1, x2 = x[..., : K // 2], x[..., K // 2 :]
    return (x * cos) + (torch.cat((-x2, x1), dim=-1) * sin)


def loss(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.cross_entropy(F.linear(x, weight).view(-1, 7).float(), target, **options)


def check(program: Callable[..., Any], args: tuple[Any, ...], expected: dict[str, int], **tolerance: Any) -> Any:
    """Values and gradients as in eager, and these composites."""
    compiled = thunder.jit(program, executors=[executor()])
    result, eager = compiled(*args), program(*args)
    torch.testing.assert_close(result, eager, **tolerance)
    assert run_by(compiled) == expected
    wanted = [one for one in args if isinstance(one, torch.Tensor) and one.requires_grad]
    given = torch.randn_like(eager)
    torch.testing.assert_close(
        torch.autograd.grad(result, wanted, given), torch.autograd.grad(eager, wanted, given), **tolerance
    )
    return compiled
