"""The loss of a language model: linear layer, selection of positions, cast, flattening, cross entropy.

A program that also returns the logits needs them in memory, so the linear layer is not part of a match; cast logits
that nothing else reads still need not be materialized.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.symbols.loss import linear_cross_entropy, upcast_cross_entropy

Tensor = torch.Tensor
Step = Callable[[Tensor], Tensor]
Part = Callable[[Tensor, int | None, int | None], Tensor]
Loss = Callable[..., Tensor]
"""From logits and target to the loss; its further parameters have the names of the composites' parameters."""


def loss_after(steps: tuple[Step, ...], loss: Loss, input: Tensor, target: Tensor, **options: Any) -> Tensor:
    """``loss`` of the logits ``input`` after some steps."""
    for step in steps:
        input = step(input)
    return loss(input, target, **options)


def linear_loss(
    steps: tuple[Step, ...],
    loss: Loss,
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """``loss`` of the logits of a linear layer after some steps."""
    return loss_after(steps, loss, F.linear(input, weight, bias), target, **options)


def _cross_entropy(input: Tensor, target: Tensor, class_weight: Tensor | None = None, **options: Any) -> Tensor:
    return F.cross_entropy(input, target, class_weight, **options)


def _linear_loss_of_part(
    before: tuple[Step, ...],
    part: Part,
    after: tuple[Step, ...],
    start: int | None,
    stop: int | None,
    **arguments: Any,
) -> Tensor:
    def cut(logits: Tensor) -> Tensor:
        return part(logits, start, stop)

    return linear_loss((*before, cut, *after), _cross_entropy, **arguments)


def upcast(logits: Tensor) -> Tensor:
    """``logits.float()``, except for float64."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def narrow_upcast(logits: Tensor) -> Tensor:
    """``logits.float()`` of float16 and bfloat16 logits."""
    if logits.dtype.itemsize >= torch.float32.itemsize:
        raise TypeError(f"{logits.dtype} is not cast")
    return logits.to(torch.float32)


def view(logits: Tensor) -> Tensor:
    """``logits.view(-1, vocabulary)``, as in Transformers."""
    return logits.view(-1, logits.shape[-1])


def reshape(logits: Tensor) -> Tensor:
    """``logits.reshape(-1, logits.size(-1))``, as in LitGPT."""
    return logits.reshape(-1, logits.shape[-1])


def flatten(logits: Tensor) -> Tensor:
    """``logits.flatten(0, 1)``, and with more dimensions ``logits.flatten(0, 2)`` and so on."""
    return logits.flatten(0, logits.ndim - 2)


def flatten_rows(logits: Tensor) -> Tensor:
    """``logits.flatten(0, -2)``, and ``logits.flatten(end_dim=-2)``."""
    return logits.flatten(0, -2)


def contiguous(logits: Tensor) -> Tensor:
    """``logits.contiguous()``, before ``view``."""
    return logits.contiguous()


def columns(logits: Tensor, start: int | None, stop: int | None) -> Tensor:
    """``logits[:, :-1]``."""
    return _of_sequences(logits)[:, start:stop]


def whole_columns(logits: Tensor, start: int | None, stop: int | None) -> Tensor:
    """``logits[:, :-1, :]``."""
    return _of_sequences(logits)[:, start:stop, :]


def last_but_one(logits: Tensor, start: int | None, stop: int | None) -> Tensor:
    """``logits[..., :-1, :]``, as in Transformers until 4.45."""
    return logits[..., start:stop, :]


def _of_sequences(logits: Tensor) -> Tensor:
    """Logits whose second dimension is the last but one, which the composite slices."""
    if logits.ndim != 3:
        raise TypeError(f"logits of {logits.ndim} dimensions")
    return logits


_OPTIONS = {"ignore_index": -371, "reduction": "sum", "label_smoothing": 0.0371}
_SAMPLE = {"weight": "bf16[7, 8]", "target": "i64[6]", "bias": "bf16[7]", **_OPTIONS}
_SAMPLE_OF_PART = {**_SAMPLE, "input": "bf16[2, 9, 8]", "start": 3, "stop": 6}
FLATTENINGS = (view, reshape, flatten, flatten_rows)


def _weights(*steps: Step) -> dict[str, str]:
    return {"class_weight": "bf16[7]" if upcast not in steps else "f32[7]"}


def _row(*steps: Step) -> Pattern:
    sample = {**_SAMPLE, **_weights(*steps), "input": "bf16[6, 8]" if steps in ((), (upcast,)) else "bf16[2, 3, 8]"}
    arguments = {"upcast": True} if upcast in steps else {}
    return Pattern(linear_cross_entropy, partial(linear_loss, steps, _cross_entropy), sample, arguments)


def _row_of_part(part: Part, *after: Step, before: tuple[Step, ...] = ()) -> Pattern:
    sample = {**_SAMPLE_OF_PART, **_weights(*before, *after)}
    arguments = {"upcast": True} if upcast in (*before, *after) else {}
    return Pattern(linear_cross_entropy, partial(_linear_loss_of_part, before, part, after), sample, arguments)


def _upcast_row(*steps: Step) -> Pattern:
    shape = "bf16[6, 7]" if len(steps) == 1 else "bf16[2, 3, 7]"
    sample = {"input": shape, "target": "i64[6]", "class_weight": "f32[7]", **_OPTIONS}
    return Pattern(upcast_cross_entropy, partial(loss_after, steps, _cross_entropy), sample)


PATTERNS = [
    *[_row(*steps) for flat in FLATTENINGS for steps in ((flat,), (upcast, flat), (flat, upcast))],
    _row(),
    _row(upcast),
    *[
        row
        for part in (columns, whole_columns, last_but_one)
        for flat in ((reshape,), (contiguous, view), (flatten,))
        for row in (
            _row_of_part(part, *flat),
            _row_of_part(part, *flat, before=(upcast,)),
            _row_of_part(part, upcast, *flat),
            _row_of_part(part, *flat, upcast),
        )
    ],
    _upcast_row(narrow_upcast),
    *[_upcast_row(*steps) for flat in FLATTENINGS for steps in ((narrow_upcast, flat), (flat, narrow_upcast))],
]
