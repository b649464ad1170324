"""Rotary position embeddings of one tensor: queries, or keys."""

from __future__ import annotations

import torch

from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.symbols.attention import rotary_embedding

Tensor = torch.Tensor


def halves(input: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``apply_rope`` of LitGPT, ``apply_rotary_pos_emb`` with ``rotate_half`` of Transformers."""
    half = input.shape[-1] // 2
    x1, x2 = input[..., :half], input[..., half:]
    return (input * cos + torch.cat((-x2, x1), dim=-1) * sin).to(input.dtype)


def chunks(input: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same with ``chunk``."""
    x1, x2 = input.chunk(2, dim=-1)
    return (input * cos + torch.cat((-x2, x1), dim=-1) * sin).to(input.dtype)


_SAMPLE = {"input": "bf16[2, 3, 5, 8]", "cos": "f32[5, 8]", "sin": "f32[5, 8]"}

PATTERNS = [Pattern(rotary_embedding, halves, _SAMPLE), Pattern(rotary_embedding, chunks, _SAMPLE)]
