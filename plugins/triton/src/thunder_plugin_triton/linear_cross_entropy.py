"""Linear layer and cross entropy together: forward and backward. Logits never exist as a whole."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_plugin_triton import scaling_kernels as kernels
from thunder_plugin_triton.cross_entropy_reduction import reduced, total_weight, weights_of
from thunder_plugin_triton.linear_cross_entropy_chunks import Sums, new_sums, pass_over_chunks
from thunder_plugin_triton.tuning import Configuration, Tunable

_SCALING: Final = Tunable("scaling", lambda: [{"BLOCK": 4096, "num_warps": 8}])


@torch.no_grad()
def run(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    upcast: bool = False,
    start: int | None = None,
    stop: int | None = None,
) -> Tensor:
    """The composite without gradients."""
    rows, weights = _rows(input, start, stop), weights_of(class_weight)
    sums = new_sums(rows, weight, bias)
    pass_over_chunks(rows, weight, target, bias, weights, ignore_index, label_smoothing, None, sums)
    dtype = torch.float32 if upcast else input.dtype
    return reduced(sums.losses, target, weights, weight.shape[0], dtype, ignore_index, reduction)[0]


@torch.no_grad()
def _forward(
    wanted: tuple[bool, bool],
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    upcast: bool = False,
    start: int | None = None,
    stop: int | None = None,
) -> tuple[Tensor, tuple[Any, ...]]:
    """The loss, and what `backward` takes: the gradients for a cotangent of 1, and a factor of float32.

    Gradients of float16 are those of the sum of losses, as divided by many tokens they would be too small for it: the
    factor divides them. It is None for other dtypes.
    """
    rows, weights = _rows(input, start, stop), weights_of(class_weight)
    classes, dtype = weight.shape[0], torch.float32 if upcast else input.dtype
    scale = factor = torch.ones((), dtype=torch.float32, device=input.device)
    if reduction == "mean":
        total = total_weight(target, weights, classes, ignore_index)
        scale = 1 / total  # infinity without any target: kernels multiply rows by it that have one
        if input.dtype is torch.float16:
            scale, factor = (torch.where(total == 0, *pair) for pair in ((scale, factor), (factor, scale)))
    sums = new_sums(rows, weight, bias, *wanted)
    pass_over_chunks(rows, weight, target, bias, weights, ignore_index, label_smoothing, scale, sums)
    loss, _ = reduced(sums.losses, target, weights, classes, dtype, ignore_index, reduction)
    return loss, _residuals(sums, input, factor, start, stop)


def _fake(
    wanted: tuple[bool, bool],
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    upcast: bool = False,
    start: int | None = None,
    stop: int | None = None,
) -> tuple[Tensor, tuple[Any, ...]]:
    """`_forward` without computing."""
    factor, loss = input.new_empty((), dtype=torch.float32), input.new_empty((), dtype=torch.float32)
    sums = new_sums(_rows(input, start, stop), weight, bias, *wanted)
    return loss if upcast else loss.to(input.dtype), _residuals(sums, input, factor, start, stop)


def _rows(input: Tensor, start: int | None, stop: int | None) -> Tensor:
    """``[N, K]``: those that have logits."""
    chosen = input if start is None and stop is None else input[..., start:stop, :]
    return chosen.reshape(-1, input.shape[-1])


def _residuals(sums: Sums, input: Tensor, factor: Tensor, start: int | None, stop: int | None) -> tuple[Any, ...]:
    place = tuple(input.shape), start, stop
    return (
        *(sums.of_input, sums.of_weight, sums.of_bias),
        *(factor if input.dtype is torch.float16 else None, input.dtype, place),
    )


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients for this cotangent. Those kept stay as they are, for another backward."""
    of_input, of_weight, of_bias, factor, dtype, place = residuals
    found: list[Tensor | None] = [None] * len(wanted)
    for position, gradient in ((0, of_input), (1, of_weight), (3, of_bias)):
        if position < len(wanted) and wanted[position]:
            scaled = _scaled(gradient, cotangents[0], factor, dtype)
            found[position] = scaled if position else _placed(scaled, *place)
    return tuple(found)


def _placed(rows: Tensor, shape: tuple[int, ...], start: int | None, stop: int | None) -> Tensor:
    """The gradient of the whole input; zeros where it has no logits."""
    if start is None and stop is None:
        return rows.view(shape)
    whole = rows.new_zeros(shape)
    chosen = whole[..., start:stop, :]
    chosen.copy_(rows.view(chosen.shape))
    return whole


def _scaled(gradient: Tensor, cotangent: Tensor, factor: Tensor | None, dtype: torch.dtype) -> Tensor:
    output = torch.empty(gradient.shape, dtype=dtype, device=gradient.device)

    def launch(chosen: Configuration) -> None:
        programs = -(-gradient.numel() // chosen["BLOCK"])
        kernels.scale_elements[(programs,)](gradient, cotangent, factor, output, gradient.numel(), **chosen)

    _SCALING.run(gradient.device, (), launch)
    return output


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """Loss and gradients of all arguments."""
    return _forward((True, True), *args, **kwargs)


def forward_of_input(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """Loss and the gradient of the input alone: weight and bias are frozen."""
    return _forward((True, False), *args, **kwargs)


def forward_of_weight(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """Loss and the gradients of weight and bias: the input needs none."""
    return _forward((False, True), *args, **kwargs)


def fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward` without computing."""
    return _fake((True, True), *args, **kwargs)


def fake_of_input(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward_of_input` without computing."""
    return _fake((True, False), *args, **kwargs)


def fake_of_weight(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward_of_weight` without computing."""
    return _fake((False, True), *args, **kwargs)


OF_ALL: Final = DerivativePair(forward, backward, fake)
OF_INPUT: Final = DerivativePair(forward_of_input, backward, fake_of_input)
OF_WEIGHT: Final = DerivativePair(forward_of_weight, backward, fake_of_weight)
