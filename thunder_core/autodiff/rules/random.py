"""Dropout."""

from __future__ import annotations

import torch
from torch import Tensor

from thunder_core.autodiff.rules.rule import Result, rule


@rule("F.dropout")
def dropout(input: Tensor, p: float, training: bool) -> Result:
    """On the CPU, what ``at::dropout`` composes there; elsewhere PyTorch has a kernel, which autograd finds."""
    if input.device.type != "cpu" or not training or not 0 < p < 1 or input.numel() == 0:
        return NotImplemented
    if not input.is_contiguous():
        return NotImplemented  # `at::dropout` draws in the order of memory, `bernoulli` in that of elements
    # PyTorch draws the same numbers for each dtype; a mask of bools takes a quarter of the memory or less
    mask = torch.ops.aten.bernoulli.p(torch.empty_like(input, dtype=torch.bool), 1 - p)
    noise = torch.div(mask.to(input.dtype), 1 - p)
    return torch.mul(input, noise), lambda g: g * noise
