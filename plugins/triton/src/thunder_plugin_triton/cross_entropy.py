"""Cross entropy of logits, forward and backward. The gradient is the only new tensor of the size of the logits."""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_triton import conditions as need
from thunder_plugin_triton import cross_entropy_conditions as loss_needs
from thunder_plugin_triton.cross_entropy_reduction import reduced, weights_of
from thunder_plugin_triton.cross_entropy_rows import gradient_of, losses_of
from thunder_plugin_triton.options import TritonOptions


def run(*args: Any, **kwargs: Any) -> Tensor:
    """`torch.nn.functional.cross_entropy` of ``[N, C]`` logits and ``[N]`` class indices."""
    return _forward(True, False, *args, **kwargs)[0]


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The loss, and the residuals of `backward`: the logits, and one float32 number per row."""
    return _forward(True, True, *args, **kwargs)


def fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    return _forward(False, True, *args, **kwargs)


def _forward(
    compute: bool,
    differentiated: bool,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> tuple[Tensor, tuple[Any, ...]]:
    options = ignore_index, reduction, label_smoothing
    loss, logsumexps, total = loss_of_rows(compute, differentiated, input, target, weight, input.dtype, *options)
    return loss, (input, target, weight, logsumexps, total, *options)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradient of the logits, in one pass."""
    if not wanted[0]:
        return (None,) * len(wanted)
    gradient: Tensor = gradient_of(cotangents[0], *residuals)
    return (gradient, *[None] * (len(wanted) - 1))


def loss_of_rows(
    compute: bool,
    differentiated: bool,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    dtype: torch.dtype,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The loss in ``dtype``, the residuals of each row, and the total of weights.

    Args:
        compute: if false, the results are not initialized.
        differentiated: if false, there are no residuals.
        input: ``[N, C]``.
        target: ``[N]``.
    """
    rows = target.shape[:1]
    logsumexps = input.new_empty(rows, dtype=torch.float32) if differentiated else None
    if not compute:
        loss = input.new_empty(rows if reduction == "none" else (), dtype=dtype)
        return loss, logsumexps, input.new_empty((), dtype=torch.float32)
    weights = weights_of(weight)
    losses = losses_of(input, target, weights, ignore_index, label_smoothing, logsumexps=logsumexps)
    loss, total = reduced(losses, target, weights, input.shape[1], dtype, ignore_index, reduction)
    return loss, logsumexps, total


PAIR: Final = DerivativePair(forward, backward, fake)


def check(
    input: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: Any = None,
    ignore_index: Any = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    label_smoothing: Any = 0.0,
) -> bool | str:
    """The reason for declining a call, or True."""
    if size_average is not None or reduce is not None:
        return "size_average and reduce are deprecated"
    if not isinstance(input, TensorProxy) or input.ndim != 2:
        return "logits are implemented as rows of classes, in two dimensions"
    return (
        loss_needs.elements(input)
        or need.tensors(input=input, weight=weight)
        or need.rows(input)
        or loss_needs.targets(target, input.shape[:1], input.device)
        or loss_needs.class_weights(weight, input.shape[1])
        or loss_needs.numbers(ignore_index, reduction, label_smoothing)
        or True
    )


def claims(options: TritonOptions) -> tuple[Claim, ...]:
    """The claim of PyTorch's function."""
    return (Claim(F.cross_entropy, run, check, PAIR, variant="rows"),)
