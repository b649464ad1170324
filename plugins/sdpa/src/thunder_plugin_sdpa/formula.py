"""Rewrites of attention to PyTorch operations, for executors that fuse or claim the parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
import torch.nn.functional as F

from thunder_core.ir.size import Size, from_fake, hint_of
from thunder_plugin_sdpa.pytorch_internals import scaled_dot_product_attention_math


@lru_cache(maxsize=256)
def formula(stride: tuple[Size, ...]) -> Callable[..., torch.Tensor]:
    """Attention in PyTorch operations, with a result of these strides; the same function for equal strides."""

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        mask = attn_mask
        if mask is not None and mask.dtype is torch.bool:  # the operator would add the zeros and ones
            mask = _added(mask, query, -math.inf)
        result: torch.Tensor
        result, _ = scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return _with_strides(result, stride)

    return attention


@lru_cache(maxsize=256)
def with_mask_for_kernels(masked: float, stride: tuple[Size, ...]) -> Callable[..., torch.Tensor]:
    """The call with a mask that kernels read, and a result of these strides.

    A bool mask becomes an additive one: 0 where it is true, and ``masked`` elsewhere. PyTorch converts the mask in each
    call. Another mask is copied so that the elements of its rows are adjacent in memory. Most kernels do not read other
    masks, such as the permuted embedding of relative positions in T5, and PyTorch computes attention with them by the
    formula, in float32. As operations of the trace, the conversions and copies of all layers are merged, and can be
    fused.
    """

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor,
        *args: object,
        **kwargs: object,
    ) -> torch.Tensor:
        mask = _added(attn_mask, query, masked) if attn_mask.dtype is torch.bool else _with_adjacent_rows(attn_mask)
        result = F.scaled_dot_product_attention(query, key, value, mask, *args, **kwargs)  # type: ignore[arg-type]
        return _with_strides(result, stride)

    return attention


def _with_adjacent_rows(mask: torch.Tensor) -> torch.Tensor:
    """A copy of a mask in which the elements of rows are adjacent. Expanded dimensions stay expanded, except those of a
    mask that requires grad, whose gradient has one value for each element of the expanded mask.
    """
    copied = mask
    for dimension in range(mask.ndim - 1):
        if mask.stride(dimension) == 0 and not mask.requires_grad:
            copied = copied.narrow(dimension, 0, 1)
    return copied.contiguous().expand(mask.shape)


def _with_strides(result: torch.Tensor, stride: tuple[Size, ...]) -> torch.Tensor:
    """The result of attention with these strides, which are dense; without a write, which rewrites must not have."""
    if from_fake(result.stride()) == stride:
        return result
    # Of dimensions with one stride, those of size 1 are the inner ones.
    order = sorted(range(result.ndim), key=lambda axis: (-hint_of(stride[axis]), hint_of(result.shape[axis]) == 1))
    copy = result.permute(order).clone(memory_format=torch.contiguous_format)
    return copy.permute([order.index(axis) for axis in range(result.ndim)])


def _added(mask: torch.Tensor, query: torch.Tensor, masked: float) -> torch.Tensor:
    """The additive mask of a bool mask."""
    return torch.where(mask, 0.0, masked).to(query.dtype)
