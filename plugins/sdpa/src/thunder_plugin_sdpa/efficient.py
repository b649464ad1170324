"""Memory-efficient attention on a GPU."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_plugin_sdpa.preparation import aligned_mask, repeated_heads, summed_heads, those_wanted
from thunder_plugin_sdpa.pytorch_internals import aten_efficient_attention, aten_efficient_attention_backward


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
    """The result without residuals."""
    key, value, bias = _prepared(query, key, value, attn_mask)
    operator = aten_efficient_attention
    return operator(query, key, value, bias, False, dropout_p, is_causal, scale=scale)[0]  # type: ignore[no-any-return]


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
    """The result, and the residuals of `backward`. Key heads are repeated if there are fewer.

    Without dropout the kernel returns an unused seed on the CPU, which fake tensors place on the GPU.
    """
    given = (query, key, value, attn_mask)
    key, value, bias = _prepared(query, key, value, attn_mask)
    operator = aten_efficient_attention
    output, logsumexp, seed, offset = operator(query, key, value, bias, True, dropout_p, is_causal, scale=scale)
    seeds = (seed, offset) if dropout_p else (None, None)
    return output, (*given, output, logsumexp, *seeds, dropout_p, is_causal, scale)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key, value and mask."""
    query, key, value, attn_mask, output, logsumexp, seed, offset, dropout_p, is_causal, scale = residuals
    if seed is None:
        seed = offset = query.new_empty((), dtype=torch.int64)
    tensors = (output, logsumexp, seed, offset)
    heads, of_mask = key.shape[1], len(wanted) == 4 and wanted[3]
    inputs = (query, *_prepared(query, key, value, attn_mask))
    operator = aten_efficient_attention_backward
    flags = [True, True, True, of_mask]
    query, key, value, mask = operator(cotangents[0], *inputs, *tensors, dropout_p, flags, is_causal, scale=scale)
    of_mask_gradient = mask.sum_to_size(attn_mask.shape) if of_mask else None
    return those_wanted((query, summed_heads(key, heads), summed_heads(value, heads), of_mask_gradient), wanted)


def _prepared(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    key, value = repeated_heads(key, query.shape[1]), repeated_heads(value, query.shape[1])
    return key, value, None if mask is None else aligned_mask(mask, query, key)


PAIR: Final = DerivativePair(forward, backward)
