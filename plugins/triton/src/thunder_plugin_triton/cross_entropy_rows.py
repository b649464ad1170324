"""Launches of the kernels for rows of logits, their losses and gradients."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_plugin_triton import cross_entropy_kernels as kernels
from thunder_plugin_triton.cross_entropy_reduction import Weights, weights_of
from thunder_plugin_triton.rows import next_power_of_two
from thunder_plugin_triton.tuning import Configuration, Tunable, rows_bucket


def _tiles(*sizes: tuple[int, ...]) -> Any:
    """Candidates for a number of classes: several short rows, or a part of a long row, with warps and stages."""
    names = ("BLOCK", "num_warps", "STAGES")[: len(sizes[0])]

    def candidates(classes: int, bucket: int) -> list[Configuration]:
        width = next_power_of_two(classes)
        if width <= sizes[0][0]:
            rows = max(1, 1024 // width)
            short = (width, 4 if rows * width <= 2048 else 8, 1)
            return [{"ROWS": rows, **dict(zip(names, short))}]
        return [{"ROWS": 1, **dict(zip(names, each))} for each in sizes if each[0] <= 2 * width]

    return candidates


_LOSSES: Final = Tunable(
    "cross_entropy",
    _tiles(
        (4096, 8, 1), (4096, 4, 1), (8192, 8, 1), (8192, 16, 1), (16384, 16, 1),
        (4096, 8, 3), (8192, 8, 3), (4096, 4, 4),
    ),
)  # fmt: skip
_GRADIENTS: Final = Tunable("cross_entropy backward", _tiles((4096, 8), (4096, 4), (2048, 4), (8192, 8), (1024, 4)))
# cannot be timed, because it overwrites its input
_BOTH: Final = Tunable("cross_entropy in place", _tiles((4096, 8, 1)))


def losses_of(
    logits: Tensor,
    target: Tensor,
    weights: Weights,
    ignore_index: int,
    smoothing: float,
    *,
    logsumexps: Tensor | None = None,
    scale: Tensor | None = None,
    columns: int | None = None,
    into: Tensor | None = None,
) -> Tensor:
    """Float32 losses of rows, 0 for ignored rows.

    Args:
        logits: ``[N, C]`` with a last stride of 1.
        logsumexps: float32 ``[N]``, an output.
        scale: a float32 scalar; if given, the derivatives times it overwrite the logits.
        columns: number of columns of memory per row; None for those of the logits.
        into: the result, contiguous; None for a new tensor.
    """
    rows, classes = logits.shape
    losses = logits.new_empty(rows, dtype=torch.float32) if into is None else into

    def launch(chosen: Configuration) -> None:
        kernels.losses_of_rows[(-(-rows // chosen["ROWS"]),)](
            logits, target, weights.each, weights.total, losses, logsumexps, scale,
            rows, logits.stride(0), ignore_index, smoothing or None,
            GRADIENT=scale is not None, CLASSES=classes, COLUMNS=columns or classes, **chosen,
        )  # fmt: skip

    (_LOSSES if scale is None else _BOTH).run(logits.device, (classes, rows_bucket(rows)), launch)
    return losses


def gradient_of(
    cotangent: Tensor,
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    logsumexps: Tensor,
    total: Tensor,
    ignore_index: int,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """The gradient of the logits, with the strides of `torch.empty_like`."""
    rows, classes = logits.shape
    weights = weights_of(weight)
    gradient = torch.empty_like(logits)
    divisor = total if reduction == "mean" else None
    step = cotangent.stride(0) if cotangent.ndim else 0

    def launch(chosen: Configuration) -> None:
        programs = -(-rows // chosen["ROWS"]) * -(-classes // chosen["BLOCK"])
        kernels.gradients_of_rows[(programs,)](
            logits, target, weights.each, weights.total, logsumexps, cotangent, divisor, gradient,
            rows, logits.stride(0), gradient.stride(0), step, ignore_index, smoothing or None,
            CLASSES=classes, **chosen,
        )  # fmt: skip

    _GRADIENTS.run(logits.device, (classes, rows_bucket(rows)), launch)
    return gradient
