"""The programs of the golden traces. Statements take one line each: Python versions number longer ones differently."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def mlp(x: torch.Tensor, weights: list[torch.Tensor], scale: float = 0.5) -> dict[str, torch.Tensor]:
    """A function on nested inputs, with views, a region without gradients and two results."""
    for weight in weights:
        x = F.gelu(F.linear(x, weight), approximate="tanh")
    rows, columns = x.shape
    with torch.no_grad():
        largest = x.view(rows, 2, columns // 2).amax(-1)
    return {"y": x * scale + x[:, :1], "largest": largest}


class Counter(nn.Module):
    """Mutation: in-place operations, writes through views, buffers, random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        y[0] = 1
        y[:, 1].mul_(2)
        self.total += y.detach().sum(0)
        y = F.dropout(y.relu_(), 0.25)
        return y.transpose(0, 1) + self.total[:, None]


class Attention(nn.Module):
    """A causal attention block under autocast, as language models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24, bias=False)
        self.out = nn.Linear(8, 8)
        self.register_buffer("cos", torch.linspace(0, 1, 12).reshape(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        with torch.autocast("cpu", dtype=torch.bfloat16):
            q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
            q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (q, k, v))
            q, k = q * self.cos, k * self.cos
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).reshape(batch, length, width)
        return x + self.out(y.float())


def programs() -> dict[str, tuple[object, tuple[object, ...]]]:
    """Each program and its arguments, by name; always the same."""
    torch.manual_seed(0)
    weights = [torch.randn(6, 4, requires_grad=True), torch.randn(8, 6)]
    return {
        "mlp": (mlp, (torch.randn(3, 4), weights)),
        "mutation": (Counter(), (torch.randn(5, 4),)),
        "attention": (Attention(), (torch.randn(2, 3, 8),)),
    }
