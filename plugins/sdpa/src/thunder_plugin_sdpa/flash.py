"""FlashAttention on a GPU."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_plugin_sdpa.preparation import default_scale, padded, those_wanted
from thunder_plugin_sdpa.pytorch_internals import aten_flash_attention, aten_flash_attention_backward


def run(*args: Any, **kwargs: Any) -> Tensor:
    """The result without residuals."""
    return forward(*args, **kwargs)[0]


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`. Head dimensions are padded to multiples of 8, as in PyTorch.

    The kernel determines the numbers of heads from the shapes.
    """
    size, scale = query.shape[-1], default_scale(query, scale)
    query, key, value = padded(query), padded(key), padded(value)
    operator = aten_flash_attention
    output, logsumexp, cum_q, cum_k, max_q, max_k, seed, offset, _ = operator(
        query, key, value, dropout_p, is_causal, False, scale=scale
    )
    tensors = (query, key, value, output, logsumexp, cum_q, cum_k)
    residuals = (*tensors, max_q, max_k, dropout_p, is_causal, seed, offset, scale)
    return output if output.shape[-1] == size else output[..., :size], residuals


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key and value."""
    *given, scale = residuals
    size = cotangents[0].shape[-1]
    operator = aten_flash_attention_backward
    gradients = operator(padded(cotangents[0]), *given, scale=scale)
    if gradients[0].shape[-1] != size:
        gradients = [gradient[..., :size] for gradient in gradients]
    return those_wanted(tuple(gradients), wanted)


PAIR: Final = DerivativePair(forward, backward)
