"""Attention in PyTorch operations, for executors that make something of the parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch


@lru_cache(maxsize=256)
def formula(stride: tuple[int, ...]) -> Callable[..., torch.Tensor]:
    """Attention in PyTorch operations, with a result of these strides; the same function for equal ones."""

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
        found, _ = torch._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        if found.stride() == stride:
            return found
        return torch.empty_strided(found.shape, stride, dtype=found.dtype, device=found.device).copy_(found)

    return attention
