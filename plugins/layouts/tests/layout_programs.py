"""Programs in which the transforms change something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thunder_testing import Arguments
from thunder_testing.conformance.transform_programs import TransformProgram

HEADS, SIZE, POSITIONS = 2, 4, 3


class Projected(nn.Module):
    """Attention of one product's parts, of which the value stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(8, 3 * HEADS * SIZE)
        self.out = nn.Linear(HEADS * SIZE, 8)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.both(x).split(HEADS * SIZE, -1)
        query, key, value = [part.view(2, POSITIONS, HEADS, SIZE).transpose(1, 2) for part in parts]
        attended = F.scaled_dot_product_attention(query.tanh(), key.tanh(), value, is_causal=True)
        return self.out(attended.transpose(1, 2).reshape(2, POSITIONS, HEADS * SIZE))


class Convolutions(nn.Module):
    """Convolutions with statistics between them, an in-place activation and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)), inplace=True)
        return self.third(y + self.second(y)).mean((2, 3))


class Perceptron(nn.Module):
    """Linear layers whose biases elementwise lines can add, and one whose result is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.first(x))
        return self.third(y + self.second(y).tanh())


def _program(kind: type[nn.Module], *shape: int) -> TransformProgram:
    make: Callable[[], Any] = kind
    return TransformProgram(kind.__name__.lower(), make, lambda: Arguments(torch.randn(shape)))


PROGRAMS = (
    _program(Projected, 2, POSITIONS, 8),
    _program(Convolutions, 2, 3, 8, 8),
    _program(Perceptron, 5, 4),
)
