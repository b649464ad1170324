"""The modules that transforms are tested with."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Normalized(nn.Module):
    """Layers with statistics: buffers that training writes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.batch = nn.BatchNorm1d(6)
        self.layer = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normalized: torch.Tensor = self.layer(torch.relu(self.batch(self.linear(x))))
        return normalized


class Attention(nn.Module):
    """A block of a transformer with a causal mask, which depends on no input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.project = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(self.norm(x)).view(*x.shape[:-1], 3, 2, 4).permute(2, 0, 3, 1, 4)
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        scores = (query @ key.transpose(-2, -1) / 2).masked_fill(~mask, -1e9)
        mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(x.shape)
        projected: torch.Tensor = self.out(mixed)
        return x + projected


class Counting(nn.Module):
    """A buffer that each call writes, and a parameter that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))
        self.weight = nn.Parameter(torch.linspace(-1, 1, 4))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        return {"result": x * self.weight, "calls": self.calls * 2}


class Dropping(nn.Module):
    """Random numbers, drawn in an order."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = F.dropout(F.gelu(self.first(x)), 0.5, self.training)
        return self.second(hidden), torch.rand_like(x) + torch.randn(4)


class Tied(nn.Module):
    """One parameter under two names, and a submodule that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.mix = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        logits: torch.Tensor = self.head(torch.tanh(self.mix(torch.tanh(self.mix(hidden)))))
        return logits


def linear_layers() -> nn.Module:
    """Layers and activations."""
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 2))
