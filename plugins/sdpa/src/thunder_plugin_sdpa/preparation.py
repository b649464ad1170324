"""PyTorch's preparation of arguments for kernels, and the corresponding operations on gradients.

Backward repeats the preparation where PyTorch saves its result: repeated keys would take as much memory as if the
program repeated them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def default_scale(query: Tensor, scale: float | None) -> float:
    """``1 / sqrt(size)``, with the size before padding."""
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def padded(tensor: Tensor, step: int = 8) -> Tensor:
    """The tensor with rows padded by zeros to a multiple of ``step`` elements."""
    missing = -tensor.shape[-1] % step
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def aligned_mask(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The mask with rows aligned to multiples of 8 elements, expanded to (batch, heads, queries, keys)."""
    keys = key.shape[2]
    if mask.shape[-1] != keys or mask.stride(-1) != 1 or any(stride % 8 for stride in mask.stride()[:-1]):
        mask = mask.expand(*mask.shape[:-1], keys)
        mask = torch.nn.functional.pad(mask, (0, -keys % 8 or 8)).contiguous()[..., :keys]  # it keeps channels last
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], keys)


def repeated_heads(tensor: Tensor, heads: int) -> Tensor:
    """The tensor with each head repeated, so that there are ``heads``."""
    count = tensor.shape[1]
    return tensor if count == heads else tensor.repeat_interleave(heads // count, 1)


def summed_heads(gradient: Tensor, heads: int) -> Tensor:
    """The gradient of the argument of `repeated_heads`, which had ``heads`` heads."""
    count = gradient.shape[1]
    return gradient if count == heads else gradient.unflatten(1, (heads, count // heads)).sum(2)


def those_wanted(gradients: tuple[Tensor | None, ...], wanted: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """The needed gradients. The mask, which is last, may be missing among the arguments."""
    return tuple([gradient if want else None for gradient, want in zip(gradients, wanted)])
