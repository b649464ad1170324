"""The softmax of attention, with scale and mask."""

from __future__ import annotations

import torch

from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.symbols.attention import scaled_softmax

Tensor = torch.Tensor


def masked(input: Tensor, scale: float, mask: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """``eager_attention_forward`` of Transformers, with a mask."""
    return torch.softmax(input * scale + mask, -1, dtype)


def unmasked(input: Tensor, scale: float, dtype: torch.dtype | None = None) -> Tensor:
    """``eager_attention_forward`` of Transformers, without one."""
    return torch.softmax(input * scale, -1, dtype)


def only_masked(input: Tensor, mask: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Attention of LitGPT with capped scores, which are scaled before they are capped."""
    return torch.softmax(input + mask, -1, dtype)


_SAMPLE = {"input": "bf16[2, 3, 5, 5]", "dtype": torch.float64}
_MASK, _SCALE = {"mask": "bf16[5, 5]"}, {"scale": 0.0371}

PATTERNS = [
    Pattern(scaled_softmax, masked, {**_SAMPLE, **_SCALE, **_MASK}),
    Pattern(scaled_softmax, unmasked, {**_SAMPLE, **_SCALE}),
    Pattern(scaled_softmax, only_masked, {**_SAMPLE, **_MASK}, {"scale": 1.0}),
]
