"""Gradients as autograd hands them on: in the shape and dtype of what they are the gradient of."""

from __future__ import annotations

import torch
from torch import Tensor


def fit(gradient: Tensor, like: Tensor) -> Tensor:
    """``gradient`` summed over what broadcasting repeated, then converted, as autograd's engine does both.

    Raises if its shape is none that ``like`` broadcasts to.
    """
    return _summed(gradient, like).to(like.dtype)


def _summed(gradient: Tensor, like: Tensor) -> Tensor:
    """``at::sum_to`` in as few lines as possible."""
    if gradient.shape == like.shape:
        return gradient
    if torch.broadcast_shapes(like.shape, gradient.shape) != gradient.shape:
        raise RuntimeError(f"a gradient of shape {tuple(gradient.shape)} for a tensor of shape {tuple(like.shape)}")
    extra = gradient.dim() - like.dim()
    # a size that varies is that of the gradient: forward has broadcast it to no other
    ones = [dim for dim, size in enumerate(like.shape) if isinstance(size, int) and size == 1]
    repeated = [extra + dim for dim in ones if gradient.shape[extra + dim] != 1]
    if not repeated:
        return torch.sum(gradient, tuple(range(extra)))
    summed = torch.sum(gradient, (*range(extra), *repeated), keepdim=True)
    return torch.reshape(summed, like.shape)
