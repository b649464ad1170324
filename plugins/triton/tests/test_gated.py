"""Gated activations: contiguous arguments, and halves of one tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from against_eager import DEVICE, assert_as_accurate_as_eager, table

import thunder

GATES: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "silu": ("swiglu", F.silu),
    "gelu": ("geglu", F.gelu),
    "gelu by tanh": ("geglu", lambda gate: F.gelu(gate, approximate="tanh")),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.slow
def test_accuracy(gate: str, dtype: torch.dtype) -> None:
    name, function = GATES[gate]
    whole = (torch.randn(2, 3, 40) * 3).to(DEVICE, dtype)
    for one, other in (whole.chunk(2, -1), (whole, whole.flip(0)), (whole[0, 0], whole[1, 1])):
        assert_as_accurate_as_eager(lambda one, other: function(one) * other, one, other, name=name)


@pytest.mark.parametrize("frozen", [0, 1])
def test_one_gradient_alone(frozen: int) -> None:
    def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return F.silu(gate) * up

    leaves = [torch.randn(3, 20, device=DEVICE, requires_grad=index != frozen) for index in range(2)]
    cotangent = torch.randn(20, 3, device=DEVICE).t()
    compiled = thunder.jit(gated, executors=["triton"])
    mine, eager = (torch.autograd.grad(each(*leaves), leaves[1 - frozen], cotangent) for each in (compiled, gated))
    torch.testing.assert_close(mine, eager)


def test_what_is_declined_says_why() -> None:
    x = torch.randn(4, 6, device=DEVICE)
    calls = {
        "not adjacent": (x.t(), x.t()),
        "have the shapes": (x, x[:1]),
        "gate is torch.float32 and up torch.bfloat16": (x, x.bfloat16()),
    }
    for reason, arguments in calls.items():
        compiled = thunder.jit(lambda gate, up: F.silu(gate) * up, executors=["triton"])
        torch.testing.assert_close(compiled(*arguments), F.silu(arguments[0]) * arguments[1])
        assert reason in table(compiled), (reason, table(compiled))
