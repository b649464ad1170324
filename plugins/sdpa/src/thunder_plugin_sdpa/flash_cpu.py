"""FlashAttention on a CPU."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_plugin_sdpa.preparation import those_wanted
from thunder_plugin_sdpa.pytorch_internals import aten_flash_attention_for_cpu, aten_flash_attention_for_cpu_backward


def run(*args: Any, **kwargs: Any) -> Tensor:
    """The result without residuals."""
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
    """The result, and the residuals of `backward`. The kernel determines the numbers of heads from the shapes."""
    operator = aten_flash_attention_for_cpu
    output, logsumexp = operator(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    # On fake tensors, PyTorch 2.11 returns float32 for the logsumexp of float64 tensors, where the kernel returns
    # float64.
    logsumexp = logsumexp.to(torch.float64 if query.dtype is torch.float64 else torch.float32)
    return output, (query, key, value, output, logsumexp, dropout_p, is_causal, attn_mask, scale)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key and value."""
    *given, attn_mask, scale = residuals
    operator = aten_flash_attention_for_cpu_backward
    gradients = operator(cotangents[0], *given, attn_mask=attn_mask, scale=scale)
    return those_wanted((*gradients, None), wanted)


PAIR: Final = DerivativePair(forward, backward)
