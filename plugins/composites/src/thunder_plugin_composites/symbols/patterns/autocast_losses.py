"""The loss of a language model under autocast on a GPU.

Autocast decomposes `torch.nn.functional.cross_entropy` there: log probabilities are rounded to the dtype of the float16
or bfloat16 logits, and the loss is computed from them in float32. The composite is the loss of cast logits.
"""

from __future__ import annotations

from functools import partial

import torch

from thunder_plugin_composites.pytorch_internals import native_log_softmax
from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.symbols.loss import linear_cross_entropy, upcast_cross_entropy
from thunder_plugin_composites.symbols.patterns.losses import FLATTENINGS, Step, linear_loss, loss_after, narrow_upcast

Tensor = torch.Tensor

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
"""As in operators of ``torch.ops``."""


def _loss(
    reduction: int, input: Tensor, target: Tensor, class_weight: Tensor | None = None, ignore_index: int = -100
) -> Tensor:
    logarithms = narrow_upcast(native_log_softmax(input, 1, False))
    loss: Tensor = torch.ops.aten.nll_loss_forward.default(logarithms, target, class_weight, reduction, ignore_index)[0]
    return loss


_SAMPLE = {"target": "i64[6]", "class_weight": "f32[7]", "ignore_index": -371}


def _linear_row(reduction: str, *steps: Step) -> Pattern:
    sample = {**_SAMPLE, "input": "bf16[2, 3, 8]" if steps else "bf16[6, 8]", "weight": "bf16[7, 8]", "bias": "bf16[7]"}
    spelling = partial(linear_loss, steps, partial(_loss, REDUCTIONS[reduction]))
    return Pattern(linear_cross_entropy, spelling, sample, {"reduction": reduction, "upcast": True})


def _row(reduction: str, *steps: Step) -> Pattern:
    sample = {**_SAMPLE, "input": "bf16[2, 3, 7]" if steps else "bf16[6, 7]"}
    spelling = partial(loss_after, steps, partial(_loss, REDUCTIONS[reduction]))
    return Pattern(upcast_cross_entropy, spelling, sample, {"reduction": reduction})


PATTERNS = [
    row(reduction, *steps)
    for row in (_linear_row, _row)
    for steps in (*[(flat,) for flat in FLATTENINGS], ())
    for reduction in REDUCTIONS
]
