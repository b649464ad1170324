"""A model, and helpers for all tests of the package, which are skipped without torchao."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of torchao about its own kernels
    pytest.importorskip("torchao.quantization", reason="torchao is not installed")

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
