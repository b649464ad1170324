"""Softmax over the last dimension. Sizes are those of the input."""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmarks.operators.case import Case, Problem, normal


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return functional.softmax(x, -1)


def softmax(dtype: torch.dtype, *sizes: int) -> Problem:
    """PyTorch's function. Backward reads the result, which has the size of the input."""
    return Problem(_softmax, (normal(*sizes, dtype=dtype),), liger=lambda f, x: f.liger_softmax(x))


def masked_softmax(dtype: torch.dtype, batch: int, heads: int, queries: int, keys: int) -> Problem:
    """The softmax of attention: scores ``(batch, heads, queries, keys)`` with a scale and a mask."""
    scores = normal(batch, heads, queries, keys, dtype=dtype, scale=8.0)
    mask = torch.full((queries, keys), torch.finfo(dtype).min, dtype=dtype).triu(1)

    def program(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return functional.softmax(scores * 0.125 + mask, -1)

    return Problem(program, (scores, mask))


CASES = (
    Case("softmax", "F.softmax", softmax, ((8192, 4096), (8192, 32000)), ((64, 256),)),
    Case("softmax", "F.softmax(scores * scale + mask)", masked_softmax, ((4, 32, 1024, 1024),), ((1, 2, 32, 32),)),
)
