"""Weights of classes, and the reduction of losses."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from torch import Tensor

from thunder_plugin_triton.cross_entropy_reduction_kernels import reduce_losses
from thunder_plugin_triton.tuning import Configuration, Tunable

_REDUCTION: Final = Tunable("cross_entropy reduction", lambda: [{"BLOCK": 4096, "num_warps": 8}])


class Weights(NamedTuple):
    """Weights of classes, and their sum in float32; both None without weights."""

    each: Tensor | None
    total: Tensor | None


def weights_of(weight: Tensor | None) -> Weights:
    """The weights of classes with their sum."""
    return Weights(weight, None if weight is None else weight.sum(dtype=torch.float32))


def total_weight(target: Tensor, weights: Weights, classes: int, ignore_index: int) -> Tensor:
    """The sum of the weights of targets that are not ignored: a float32 scalar."""
    total = torch.empty((), dtype=torch.float32, device=target.device)
    _reduce(None, target, weights, None, total, classes, ignore_index, mean=False)
    return total


def reduced(
    losses: Tensor, target: Tensor, weights: Weights, classes: int, dtype: torch.dtype,
    ignore_index: int, reduction: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The reduced loss, and `total_weight`."""
    if reduction == "none":
        return losses.to(dtype), total_weight(target, weights, classes, ignore_index)
    total = torch.empty((), dtype=torch.float32, device=target.device)
    loss = torch.empty((), dtype=dtype, device=target.device)
    _reduce(losses, target, weights, loss, total, classes, ignore_index, mean=reduction == "mean")
    return loss, total


def _reduce(
    losses: Tensor | None, target: Tensor, weights: Weights, loss: Tensor | None, total: Tensor,
    classes: int, ignore_index: int, *, mean: bool,
) -> None:  # fmt: skip
    """Launch the reduction. On a GPU, an invalid class fails a device assertion, as in eager PyTorch."""
    if target.device.type == "cpu":
        wrong = target[(target != ignore_index) & ((target < 0) | (target >= classes))]
        if wrong.numel():
            raise IndexError(f"Target {int(wrong[0])} is out of bounds.")  # as in eager PyTorch

    def launch(chosen: Configuration) -> None:
        reduce_losses[(1,)](
            losses, target, weights.each, loss, total, target.shape[0], ignore_index, MEAN=mean, CLASSES=classes,
            debug=True, sanitize_overflow=False, **chosen,  # enables only the assertions of this kernel
        )  # fmt: skip

    _REDUCTION.run(target.device, (), launch)
