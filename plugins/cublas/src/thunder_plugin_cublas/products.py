"""PyTorch's functions for products, as traces call them.

Each has the arguments of its original, and how many algorithms are timed.
"""

from __future__ import annotations

import torch

from thunder_plugin_cublas.options import CANDIDATES
from thunder_plugin_cublas.plans import multiplied


def linear(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, candidates: int = CANDIDATES
) -> torch.Tensor:
    """`torch.nn.functional.linear`."""
    rows = multiplied(_rows(input), weight.t(), None, bias, candidates)
    return rows.view(*input.shape[:-1], weight.shape[0])


def matmul(input: torch.Tensor, other: torch.Tensor, candidates: int = CANDIDATES) -> torch.Tensor:
    """`torch.matmul` with one matrix on the right."""
    return multiplied(_rows(input), other, None, None, candidates).view(*input.shape[:-1], other.shape[1])


def mm(input: torch.Tensor, mat2: torch.Tensor, candidates: int = CANDIDATES) -> torch.Tensor:
    """`torch.mm`."""
    return multiplied(input, mat2, None, None, candidates)


def addmm(input: torch.Tensor, mat1: torch.Tensor, mat2: torch.Tensor, candidates: int = CANDIDATES) -> torch.Tensor:
    """`torch.addmm` with factors of one."""
    bias, start = (input, None) if input.dim() == 1 else (None, input)
    return multiplied(mat1, mat2, start, bias, candidates)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dim() == 2 else tensor.view(-1, tensor.shape[-1])
