"""Fusion regions of pointwise operations. Sizes are rows and columns."""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmarks.operators.case import Case, Problem, normal

CUDA = ((8192, 5632), (8192, 8192))
CPU = ((64, 256),)


def _bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x + bias)


def _softcap(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x / 30) * 30


def _normalized_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.gelu(functional.layer_norm(x, bias.shape, weight, bias)) * up


def bias_gelu(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """Bias and GELU, whose backward reduces over the rows."""
    return Problem(_bias_gelu, (normal(rows, columns, dtype=dtype), normal(columns, dtype=dtype)))


def softcap(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """Gemma's soft cap of logits."""
    return Problem(_softcap, (normal(rows, columns, dtype=dtype, scale=20.0),))


def normalized_gelu(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """Pointwise operations around reductions: over columns in forward, over both dimensions in backward."""
    x, up = normal(rows, columns, dtype=dtype), normal(rows, columns, dtype=dtype)
    return Problem(_normalized_gelu, (x, normal(columns, dtype=dtype), normal(columns, dtype=dtype), up))


CASES = (
    Case("pointwise", "F.gelu(x + bias)", bias_gelu, CUDA[:1], CPU),
    Case("pointwise", "tanh(x / 30) * 30", softcap, CUDA[1:], CPU),
    Case("pointwise", "F.gelu(F.layer_norm(x)) * up", normalized_gelu, CUDA[:1], CPU),
)
