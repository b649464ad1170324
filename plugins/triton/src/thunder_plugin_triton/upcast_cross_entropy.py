"""Cross entropy of float16 or bfloat16 logits that the program casts to float32, which the kernels do not copy."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_triton import conditions as need
from thunder_plugin_triton import cross_entropy_conditions as loss_needs
from thunder_plugin_triton.cross_entropy import loss_of_rows
from thunder_plugin_triton.cross_entropy_rows import gradient_of
from thunder_plugin_triton.options import TritonOptions


def run(*args: Any, **kwargs: Any) -> Tensor:
    """The composite without residuals."""
    return _forward(True, False, *args, **kwargs)[0]


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The composite, and the residuals of `backward`: the logits, and one float32 number per row."""
    return _forward(True, True, *args, **kwargs)


def fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    return _forward(False, True, *args, **kwargs)


def _forward(
    compute: bool,
    differentiated: bool,
    input: Tensor,
    target: Tensor,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> tuple[Tensor, tuple[Any, ...]]:
    rows, options = input.reshape(-1, input.shape[-1]), (ignore_index, reduction, label_smoothing)
    loss, logsumexps, total = loss_of_rows(compute, differentiated, rows, target, class_weight, torch.float32, *options)
    return loss, (input, target, class_weight, logsumexps, total, *options)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradient of the logits, in their dtype and contiguous."""
    if not wanted[0]:
        return (None,) * len(wanted)
    input, *others = residuals
    gradient = gradient_of(cotangents[0], input.reshape(-1, input.shape[-1]), *others)
    return (gradient.view(input.shape), *[None] * (len(wanted) - 1))


def check(
    input: TensorProxy,
    target: TensorProxy,
    class_weight: TensorProxy | None = None,
    ignore_index: Any = -100,
    reduction: Any = "mean",
    label_smoothing: Any = 0.0,
) -> bool | str:
    """The reason for declining a call, or True."""
    return (
        need.tensors(input=input, class_weight=class_weight)
        or ("logits of one row are not implemented" if input.ndim < 2 else None)
        or loss_needs.elements(input)
        or need.rows(input)
        or loss_needs.targets(target, (input.numel // input.shape[-1],), input.device)
        or loss_needs.class_weights(class_weight, input.shape[-1])
        or loss_needs.numbers(ignore_index, reduction, label_smoothing)
        or True
    )


PAIR: Final = DerivativePair(forward, backward, fake)


def claims(options: TritonOptions) -> tuple[Claim, ...]:
    """The claim of the composite."""
    return (Claim(composites.upcast_cross_entropy, run, check, PAIR, variant="rows"),)
