"""Run-time functions that layer and root mean square normalization share."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from thunder_plugin_cudnn.layouts import aligned
from thunder_plugin_cudnn.norm_graphs import Kind, Slot, norm_backward, norm_forward
from thunder_plugin_cudnn.plans import execute


def normalized(
    compute: bool,
    kind: Kind,
    input: Tensor,
    size: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    statistics: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The normalized rows of ``size`` elements of a contiguous tensor, their means (or None), and their factors.

    Args:
        compute: if false, the results are not initialized.
    """
    output, rows = torch.empty_like(input), input.numel() // size
    mean = input.new_empty(rows, dtype=torch.float32) if statistics and kind == "layernorm" else None
    inverse = input.new_empty(rows, dtype=torch.float32) if statistics else None
    if compute:
        of_weight = None if weight is None else weight.dtype
        of_bias = None if bias is None else bias.dtype
        description = (kind, rows, size, input.dtype, of_weight, of_bias, eps, statistics)
        tensors: dict[int, Tensor | None] = {
            Slot.INPUT: aligned(input),
            Slot.WEIGHT: None if weight is None else aligned(weight),
            Slot.BIAS: None if bias is None else aligned(bias),
            Slot.OUTPUT: output,
            Slot.MEAN: mean,
            Slot.INVERSE: inverse,
        }
        execute(norm_forward, input.device, description, tensors)
    return output, mean, inverse


def gradients(
    kind: Kind, cotangent: Tensor, input: Tensor, size: int, weight: Tensor | None, mean: Any, inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the input, the weight and, if ``kind`` has one, the bias; the latter have ``size`` elements."""
    of_input = torch.empty_like(input)
    of_weight = input.new_empty(size, dtype=input.dtype if weight is None else weight.dtype)
    of_bias = torch.empty_like(of_weight) if kind == "layernorm" else None
    description = (kind, input.numel() // size, size, input.dtype, None if weight is None else weight.dtype)
    tensors: dict[int, Tensor | None] = {
        Slot.COTANGENT: aligned(cotangent.contiguous()),
        Slot.INPUT: aligned(input),
        Slot.WEIGHT: None if weight is None else aligned(weight),
        Slot.MEAN: mean,
        Slot.INVERSE: inverse,
        Slot.INPUT_GRADIENT: of_input,
        Slot.WEIGHT_GRADIENT: of_weight,
        Slot.BIAS_GRADIENT: of_bias,
    }
    execute(norm_backward, input.device, description, tensors)
    return of_input, of_weight, of_bias


def row_size(shape: Any) -> int:
    """The number of elements that are normalized together."""
    return prod(map(int, shape))
