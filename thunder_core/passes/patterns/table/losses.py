"""The loss of a language model: linear layer, conversion, flattening, cross entropy; the latter two in any order.

A program whose result has the logits as well needs them in memory, so it has no match.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from thunder_core.passes.patterns.pattern import Pattern
from thunder_core.symbols.composites import linear_cross_entropy

Tensor = torch.Tensor
Step = Callable[[Tensor], Tensor]


def _loss(
    steps: tuple[Step, ...],
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    logits = F.linear(input, weight, bias)
    for step in steps:
        logits = step(logits)
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": label_smoothing}
    return F.cross_entropy(logits, target, class_weight, ignore_index=ignore_index, **options)


def upcast(logits: Tensor) -> Tensor:
    """``logits.float()``, except for float64."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def view(logits: Tensor) -> Tensor:
    """``logits.view(-1, vocabulary)``, as in Transformers."""
    return logits.view(-1, logits.shape[-1])


def reshape(logits: Tensor) -> Tensor:
    """``logits.reshape(-1, logits.size(-1))``, as in LitGPT."""
    return logits.reshape(-1, logits.shape[-1])


def flatten(logits: Tensor) -> Tensor:
    """``logits.flatten(0, 1)``."""
    return logits.flatten(0, 1)


def flatten_rows(logits: Tensor) -> Tensor:
    """``logits.flatten(0, -2)``, and ``logits.flatten(end_dim=-2)``."""
    return logits.flatten(0, -2)


_SAMPLE = {
    "weight": "bf16[7, 8]",
    "target": "i64[6]",
    "bias": "bf16[7]",
    "ignore_index": -371,
    "reduction": "sum",
    "label_smoothing": 0.0371,
}


def _row(*steps: Step) -> Pattern:
    sample = {
        **_SAMPLE,
        "input": "bf16[6, 8]" if steps in ((), (upcast,)) else "bf16[2, 3, 8]",
        "class_weight": "f32[7]" if upcast in steps else "bf16[7]",
    }
    return Pattern(linear_cross_entropy, partial(_loss, steps), sample, {"upcast": True} if upcast in steps else {})


PATTERNS = [
    *[
        _row(*steps)
        for flat in (view, reshape, flatten, flatten_rows)
        for steps in ((flat,), (upcast, flat), (flat, upcast))
    ],
    _row(),
    _row(upcast),
]
