"""The loss of a language model: of logits that are converted before, and with the linear layer they come from."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def linear_cross_entropy(
    input: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    bias: torch.Tensor | None = None,
    class_weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    upcast: bool = False,
    start: int | None = None,
    stop: int | None = None,
) -> torch.Tensor:
    """``cross_entropy(linear(input, weight, bias), target)``, for all rows of ``input`` as one batch.

    The logits are nobody else's, so that they need not exist as a whole.

    Args:
        input: floating point, ``[..., K]``, or ``[..., T, K]`` with ``start`` or ``stop``.
        weight: ``[V, K]``, in the dtype of ``input``.
        target: int64, ``[N]``: classes, for as many rows as are left of ``input``.
        bias: ``[V]``, in the dtype of ``input``.
        class_weight: ``[V]``; the ``weight`` of `torch.nn.functional.cross_entropy`.
        ignore_index, reduction, label_smoothing: as there.
        upcast: the logits are converted to float32 (float64 stays) before the loss.
        start, stop: only ``input[..., start:stop, :]`` has logits, as without the last token, which nothing follows.

    Returns:
        A scalar, or ``[N]`` where ``reduction`` is "none": of the dtype of ``input``, or of the converted logits.
    """
    if start is not None or stop is not None:
        input = input[..., start:stop, :]
    logits = F.linear(input.reshape(-1, input.shape[-1]), weight, bias)
    if upcast:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(
        logits,
        target,
        class_weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def upcast_cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    class_weight: torch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """``cross_entropy(input.float(), target)``, for all rows of ``input`` as one batch.

    The converted logits are nobody else's, so that they need not exist.

    Args:
        input: float16 or bfloat16, ``[..., C]``: ``N`` rows of ``C`` logits.
        target: int64, ``[N]``: classes.
        class_weight: float32, ``[C]``; the ``weight`` of `torch.nn.functional.cross_entropy`.
        ignore_index, reduction, label_smoothing: as there.

    Returns:
        float32: a scalar, or ``[N]`` where ``reduction`` is "none".
    """
    logits = input.reshape(-1, input.shape[-1]).to(torch.float32)
    return F.cross_entropy(
        logits,
        target,
        class_weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
