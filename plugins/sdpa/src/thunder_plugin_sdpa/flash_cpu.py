"""FlashAttention on a CPU."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_plugin_sdpa.preparation import those_wanted


def run(*args: Any, **kwargs: Any) -> Tensor:
    """Without what backward needs."""
    return forward(*args, **kwargs)[0]


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
    """The result, and what `backward` takes. The kernel takes the numbers of heads from the shapes."""
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    output, logsumexp = operator(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    return output, (query, key, value, output, logsumexp, dropout_p, is_causal, attn_mask, scale)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key and value."""
    *given, attn_mask, scale = residuals
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    gradients = operator(cotangents[0], *given, attn_mask=attn_mask, scale=scale)
    return those_wanted((*gradients, None), wanted)


PAIR: Final = DerivativePair(forward, backward)
