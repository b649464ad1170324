"""cuDNN's attention on a GPU."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_plugin_sdpa.preparation import those_wanted
from thunder_plugin_sdpa.pytorch_internals import aten_cudnn_attention, aten_cudnn_attention_backward

MASKED: Final = -65504.0
"""The value that PyTorch uses instead of minus infinity in masks, which cuDNN does not always support."""


def run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The result without residuals. cuDNN determines the numbers of heads from the shapes."""
    operator = aten_cudnn_attention
    results = operator(query, key, value, attn_mask, False, dropout_p, is_causal, False, scale=scale)
    return results[0]  # type: ignore[no-any-return]


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`."""
    operator = aten_cudnn_attention
    output, logsumexp, cum_q, cum_k, max_q, max_k, seed, offset, _ = operator(
        query, key, value, attn_mask, True, dropout_p, is_causal, False, scale=scale
    )
    tensors = (query, key, value, output, logsumexp, seed, offset)
    return output, (*tensors, attn_mask, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, scale)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key and value."""
    *given, scale = residuals
    operator = aten_cudnn_attention_backward
    gradients = operator(cotangents[0], *given, scale=scale)
    return those_wanted((*gradients, None), wanted)


PAIR: Final = DerivativePair(forward, backward)
