"""Gated activations. Sizes are rows and columns."""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmarks.operators.case import Case, Problem, normal

CUDA = ((8192, 5632), (4096, 11008))
CPU = ((64, 256),)


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def _geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.gelu(gate, approximate="tanh") * up


def _sides(dtype: torch.dtype, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(rows, columns, dtype=dtype), normal(rows, columns, dtype=dtype)


def swiglu(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """The activation of Llama's feed-forward layers."""
    return Problem(_swiglu, _sides(dtype, rows, columns), liger=lambda f, gate, up: f.liger_swiglu(gate, up))


def geglu(dtype: torch.dtype, rows: int, columns: int) -> Problem:
    """The activation of Gemma's feed-forward layers, with the tanh approximation of GELU."""
    return Problem(_geglu, _sides(dtype, rows, columns), liger=lambda f, gate, up: f.liger_geglu(gate, up))


CASES = (
    Case("swiglu", "F.silu(gate) * up", swiglu, CUDA, CPU),
    Case("geglu", 'F.gelu(gate, approximate="tanh") * up', geglu, CUDA[:1], CPU),
)
