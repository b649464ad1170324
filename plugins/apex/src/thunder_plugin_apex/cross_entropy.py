"""``torch.nn.functional.cross_entropy``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_apex.conditions import unfit, unfit_dtype, unfit_number
from thunder_plugin_apex.library import CROSS_ENTROPY, extension


def unfit_call(
    device: str,
    input: TensorProxy,
    target: TensorProxy,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: Any = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    label_smoothing: Any = 0.0,
) -> str | None:
    """The reason why Apex does not run the call; None if it does."""
    if weight is not None:
        return "class weights are not implemented"
    if size_average is not None or reduce is not None:
        return "size_average and reduce are given instead of reduction"
    if reduction not in ("none", "mean", "sum"):
        return f"reduction is {reduction!r}"
    if target.dtype is not torch.int64:
        return f"target is {target.dtype}, and class indices in int64 are required"
    if input.ndim != 2 or target.ndim != 1:
        return f"input has {input.ndim} dimensions and target {target.ndim}, not 2 and 1"
    numbers = unfit_number("ignore_index", ignore_index) or unfit_number("label_smoothing", label_smoothing)
    if reason := unfit_dtype(input) or unfit(device, {"input": input, "target": target}) or numbers:
        return reason
    return None if 0 <= label_smoothing <= 1 else f"label_smoothing is {label_smoothing}, not between 0 and 1"


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The loss, and the residuals of `backward`."""
    return _forward(_losses, *args, **kwargs)


def _forward(
    kernel: Callable[..., tuple[Tensor, Tensor]],
    input: Tensor,
    target: Tensor,
    weight: None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> tuple[Tensor, tuple[Any, ...]]:
    """The call with class 0 in place of ignored labels, because the kernel reads the logit of each label.

    Apex (``padding_idx``) supports only one ignored label, which must be a class, and does not reduce the losses.
    """
    counted = target != ignore_index
    labels = torch.where(counted, target, 0)
    losses, logsumexp = kernel(input, labels, label_smoothing)
    losses = torch.where(counted, losses, 0.0)
    number = counted.sum() if reduction == "mean" else None
    if reduction != "none":
        losses = losses.sum()
    loss = losses if number is None else losses / number
    return loss.to(input.dtype), (input, target, labels, logsumexp, number, ignore_index, label_smoothing)


def _losses(input: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The losses and the logsumexps of all rows; both float32."""
    with torch.cuda.device_of(input):  # Apex launches on the current device
        losses, logsumexp = extension(CROSS_ENTROPY).forward(input, labels, smoothing, input.dtype is not torch.float32)
    if smoothing == 0:
        # Even with smoothing 0 the kernel multiplies the mean of the logits by it: a logit of -inf, for a class that is
        # masked out, makes the loss NaN.
        losses = logsumexp - input.gather(1, labels[:, None])[:, 0]
    return losses, logsumexp


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradient of input. The kernel requires float32 gradients of losses if logsumexp is float32."""
    if not wanted[0]:
        return (None, None)
    input, target, labels, logsumexp, number, ignore_index, smoothing = residuals
    gradient = cotangents[0].float() if number is None else cotangents[0].float() / number
    of_losses = torch.where(target != ignore_index, gradient, 0.0)
    with torch.cuda.device_of(input):
        return extension(CROSS_ENTROPY).backward(of_losses.contiguous(), input, logsumexp, labels, smoothing), None


def _fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return _forward(_empty, *args, **kwargs)


def _empty(input: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    losses, logsumexp = (torch.empty_like(labels, dtype=torch.float32) for _ in range(2))
    return losses, logsumexp


PAIR: Final = DerivativePair(forward, backward, _fake)
