"""RMSNorm. With float32 tensors most casts are absent, and several forms are equal."""

from __future__ import annotations

import torch

from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.symbols.normalization import computed_in, rms_norm

Tensor = torch.Tensor


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(computed_in(tensor.dtype))


def _normalized(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def _normalized_by_product(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + eps)


def gemma(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``GemmaRMSNorm`` and its successors, in Transformers."""
    return (_normalized(_wide(input), eps) * (1.0 + _wide(weight))).type_as(input)


def litgpt_unit_offset(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``RMSNorm`` with ``add_unit_offset``, in LitGPT. It adds before casting, which differs in bfloat16."""
    return (_normalized_by_product(_wide(input), eps) * (1 + _wide(weight))).to(input.dtype)


def litgpt(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``RMSNorm`` in LitGPT."""
    return (_normalized_by_product(_wide(input), eps) * _wide(weight)).to(input.dtype)


def litgpt_by_power(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same with ``pow(2)``."""
    return (_normalized(_wide(input), eps) * _wide(weight)).to(input.dtype)


def promoted(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``Olmo2RMSNorm`` in Transformers, which casts the weight by promotion."""
    return (weight * _normalized(_wide(input), eps)).to(input.dtype)


def llama(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``LlamaRMSNorm`` and similar modules in Transformers."""
    return weight * _normalized(_wide(input), eps).to(input.dtype)


def llama_by_product(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same with ``x * x``."""
    return weight * _normalized_by_product(_wide(input), eps).to(input.dtype)


def llama_of_meta(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``RMSNorm`` of Meta's Llama, which casts by ``type_as``."""
    return weight * _normalized(_wide(input), eps).type_as(input)


def t5(input: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``T5LayerNorm`` in Transformers, which casts the input by promotion."""
    scales = torch.rsqrt(_wide(input).pow(2).mean(-1, keepdim=True) + eps)
    return weight * (input * scales).to(input.dtype)


_SAMPLE = {"input": "bf16[2, 3, 8]", "weight": "bf16[8]", "eps": 0.0371}
_OFFSET = {"unit_offset": True}

PATTERNS = [
    Pattern(rms_norm, gemma, _SAMPLE, _OFFSET),
    Pattern(rms_norm, litgpt_unit_offset, _SAMPLE, _OFFSET),
    Pattern(rms_norm, litgpt, _SAMPLE),
    Pattern(rms_norm, litgpt_by_power, _SAMPLE),
    Pattern(rms_norm, promoted, _SAMPLE),
    *[Pattern(rms_norm, row, _SAMPLE, {"rounded": True}) for row in (llama, llama_by_product, llama_of_meta, t5)],
]
