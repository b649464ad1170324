"""The loss of a language model: of logits that are cast before, and with the preceding linear layer."""

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
    """``cross_entropy(linear(input, weight, bias), target)``, with all rows of ``input`` as one batch.

    Nothing else reads the logits, so a kernel need not materialize all of them.

    Args:
        input: floating point, ``[..., K]``, or ``[..., T, K]`` with ``start`` or ``stop``.
        weight: ``[V, K]``, in the dtype of ``input``.
        target: int64, ``[N]``: classes, one for each selected row of ``input``.
        bias: ``[V]``, in the dtype of ``input``.
        class_weight: ``[V]``; the ``weight`` of `torch.nn.functional.cross_entropy`.
        ignore_index, reduction, label_smoothing: as for `torch.nn.functional.cross_entropy`.
        upcast: whether the logits are cast to float32 before the loss (float64 stays).
        start, stop: only ``input[..., start:stop, :]`` has logits, for example without the last token.

    Returns:
        A scalar, or ``[N]`` if ``reduction`` is "none", in the dtype of ``input`` or of the cast logits.
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
    """``cross_entropy(input.float(), target)``, with all rows of ``input`` as one batch.

    Nothing else reads the cast logits, so a kernel need not materialize them.

    Args:
        input: float16 or bfloat16, ``[..., C]``: ``N`` rows of ``C`` logits.
        target: int64, ``[N]``: classes.
        class_weight: float32, ``[C]``; the ``weight`` of `torch.nn.functional.cross_entropy`.
        ignore_index, reduction, label_smoothing: as for `torch.nn.functional.cross_entropy`.

    Returns:
        float32: a scalar, or ``[N]`` if ``reduction`` is "none".
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
