"""Models, and helpers for all tests of the package."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FILTERS = ("ignore::DeprecationWarning:torchao", "ignore::FutureWarning:torchao")


class Block(nn.Module):
    """Linear layers, one of which fits no group, and one that is named like the head of a language model."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Linear(64, 128)
        self.narrow = nn.Linear(128, 36)
        self.down = nn.Linear(36, 64, bias=False)
        self.lm_head = nn.Linear(64, 32)
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.lm_head(self.down(self.narrow(F.silu(self.up(x)))) + x)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
