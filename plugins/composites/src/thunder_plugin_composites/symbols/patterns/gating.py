"""Gated linear units without their linear layers, as in LitGPT's and Transformers' Llama and Gemma."""

from __future__ import annotations

from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.symbols.gating import geglu, swiglu

_SAMPLE = {"gate": "bf16[2, 3, 8]", "up": "bf16[2, 3, 8]"}

PATTERNS = [
    Pattern(swiglu, swiglu, _SAMPLE),
    Pattern(geglu, geglu, {**_SAMPLE, "approximate": "tanh"}),
]
