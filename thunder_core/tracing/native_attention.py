"""Metadata of the native functions that PyTorch's attention modules call where no gradients are recorded.

PyTorch has no meta kernels for them: fake tensors would run the kernels on zeros. That takes as long as the real call,
and returns wrong strides (those of the query) and a tensor in place of omitted attention weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import aten_native_multi_head_attention, aten_transformer_encoder_layer

Autocast = tuple[tuple[str, torch.dtype], ...]


def _attention(
    autocast: Autocast,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    batch, length, _ = query.shape
    heads = () if average_attn_weights else (num_head,)
    weights = _new(autocast, query, (batch, *heads, length, key.shape[1])) if need_weights else None
    return _new(autocast, query, query.shape), weights


def _encoder_layer(autocast: Autocast, src: torch.Tensor, *args: Any) -> torch.Tensor:
    return _new(autocast, src, src.shape)


def _new(autocast: Autocast, like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A result tensor, with the autocast dtype if enabled: autocast casts the arguments of the inner linear layers."""
    lower = {} if like.dtype is torch.float64 else dict(autocast)
    return like.new_empty(shape, dtype=lower.get(like.device.type, like.dtype))


NATIVE_ATTENTION: Final[dict[Any, Callable[..., Any]]] = {
    aten_native_multi_head_attention: _attention,
    aten_transformer_encoder_layer: _encoder_layer,
}
"""By operator, a function from the autocast modes and the fake arguments to the fake results.

All results are contiguous, whatever the strides of the arguments.
"""
