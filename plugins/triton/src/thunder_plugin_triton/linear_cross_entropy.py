"""Linear layer and cross entropy, forward and backward, without logits of all tokens in memory."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_plugin_triton import scaling_kernels as kernels
from thunder_plugin_triton.cross_entropy_reduction import Weights, reduced, total_weight, weights_of
from thunder_plugin_triton.linear_cross_entropy_chunks import Sums, new_sums, pass_over_chunks
from thunder_plugin_triton.tuning import Configuration, Tunable

_SCALING: Final = Tunable("scaling", lambda: [{"BLOCK": 4096, "num_warps": 8}])


@torch.no_grad()
def _forward(
    compute: bool,
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
    """The loss, and the residuals of `backward`: the gradients for a cotangent of 1, and a float32 factor.

    Args:
        compute: if false, the results have no values; only for calls with gradients, whose loss is a scalar.
        wanted: whether the gradients of the input, and of weight and bias, are needed.
    """
    rows, dtype = _rows(input, start, stop), torch.float32 if upcast else input.dtype
    sums, classes = new_sums(rows, weight, bias, *wanted), weight.shape[0]
    if not compute:
        empty = input.new_empty((), dtype=torch.float32)
        return empty.to(dtype, copy=True), _residuals(sums, input, classes, empty, start, stop)
    weights = weights_of(class_weight)
    scale: Tensor | None = None
    factor: Tensor | None = None
    if any(wanted):
        scale, factor = _scales(input, target, weights, classes, ignore_index, reduction)
    pass_over_chunks(rows, weight, target, bias, weights, ignore_index, label_smoothing, scale, sums)
    loss, _ = reduced(sums.losses, target, weights, classes, dtype, ignore_index, reduction)
    return loss, _residuals(sums, input, classes, factor, start, stop)


def _scales(
    input: Tensor, target: Tensor, weights: Weights, classes: int, ignore_index: int, reduction: str
) -> tuple[Tensor, Tensor]:
    """The factor of gradients of losses before rounding, and that of backward.

    Gradients in float16 are those of the sum of losses, because a division by many tokens would underflow; the factor
    of backward divides them. For other dtypes it is None.
    """
    scale = factor = torch.ones((), dtype=torch.float32, device=input.device)
    if reduction == "mean":
        total = total_weight(target, weights, classes, ignore_index)
        scale = 1 / total  # infinity without any target; kernels only multiply rows with a target by it
        if input.dtype is torch.float16:
            scale, factor = (torch.where(total == 0, *pair) for pair in ((scale, factor), (factor, scale)))
    return scale, factor


def _rows(input: Tensor, start: int | None, stop: int | None) -> Tensor:
    """The rows ``[N, K]`` that have logits."""
    chosen = input if start is None and stop is None else input[..., start:stop, :]
    return chosen.reshape(-1, input.shape[-1])


def _residuals(
    sums: Sums, input: Tensor, classes: int, factor: Tensor | None, start: int | None, stop: int | None
) -> tuple[Any, ...]:
    strides = torch.empty_like(input, device="meta").stride()
    place = tuple(input.shape), tuple(strides), start, stop
    return (
        *(sums.of_input, None if sums.of_weight is None else sums.of_weight[:classes], sums.of_bias),
        *(factor if input.dtype is torch.float16 else None, input.dtype, place),
    )


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradients for a cotangent. The residuals are not modified, so that backward can run again."""
    of_input, of_weight, of_bias, factor, dtype, place = residuals
    gradients: list[Tensor | None] = [None] * len(wanted)
    for position, gradient in ((0, of_input), (1, of_weight), (3, of_bias)):
        if position < len(wanted) and wanted[position]:
            scaled = _scaled(gradient, cotangents[0], factor, dtype)
            gradients[position] = scaled if position else _placed(scaled, *place)
    return tuple(gradients)


def _placed(
    rows: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], start: int | None, stop: int | None
) -> Tensor:
    """The gradient of the whole input with the input's strides; zeros for rows without logits."""
    if start is None and stop is None:
        gradient = rows.view(shape)
        if gradient.stride() == strides:
            return gradient
        return torch.empty_strided(shape, strides, dtype=rows.dtype, device=rows.device).copy_(gradient)
    whole = torch.empty_strided(shape, strides, dtype=rows.dtype, device=rows.device).zero_()
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


def run(*args: Any, **kwargs: Any) -> Tensor:
    """The composite without gradients."""
    return _forward(True, (False, False), *args, **kwargs)[0]


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """Loss and gradients of all arguments."""
    return _forward(True, (True, True), *args, **kwargs)


def forward_of_input(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """Loss and the gradient of the input only, with frozen weight and bias."""
    return _forward(True, (True, False), *args, **kwargs)


def forward_of_weight(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """Loss and the gradients of weight and bias only."""
    return _forward(True, (False, True), *args, **kwargs)


def fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    return _forward(False, (True, True), *args, **kwargs)


def fake_of_input(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward_of_input`."""
    return _forward(False, (True, False), *args, **kwargs)


def fake_of_weight(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward_of_weight`."""
    return _forward(False, (False, True), *args, **kwargs)


OF_ALL: Final = DerivativePair(forward, backward, fake)
OF_INPUT: Final = DerivativePair(forward_of_input, backward, fake_of_input)
OF_WEIGHT: Final = DerivativePair(forward_of_weight, backward, fake_of_weight)
