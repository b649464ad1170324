"""Conditions of the kernels of cross entropy. Each function returns a reason for declining, or None."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, are_equal, least_of
from thunder_plugin_triton import conditions as need


def targets(target: Any, shape: tuple[Any, ...], device: torch.device) -> str | None:
    """Targets are class indices, one per row, and contiguous."""
    if not isinstance(target, TensorProxy):
        return "target is not a tensor"
    if target.dtype.is_floating_point:
        return "targets are probabilities; classes are implemented"
    if target.dtype not in (torch.int64, torch.uint8):
        return f"target is {target.dtype}, which PyTorch does not take either"
    if not are_equal(target.shape, shape):
        return f"target has the shape {list(target.shape)}, not {list(shape)}"
    if target.device != device:
        return f"target is on {target.device}, others are on {device}"
    return None if target.contiguous else "target is not contiguous"


def class_weights(weight: Any, classes: Any) -> str | None:
    """The weight of classes has one element per class and does not require grad."""
    if weight is None:
        return None
    if not isinstance(weight, TensorProxy):
        return "the weight of classes is not a tensor"
    return need.parameter("the weight of classes", weight, (classes,))


def numbers(ignore_index: Any, reduction: Any, label_smoothing: Any) -> str | None:
    """Numbers are known when the program is compiled, and valid."""
    if not isinstance(ignore_index, int):
        return "ignore_index is known only at run time"
    if reduction not in ("mean", "sum", "none"):
        return f"reduction {reduction!r} is unknown"
    if not isinstance(label_smoothing, (int, float)):
        return "label_smoothing is known only at run time"
    return None if 0 <= label_smoothing <= 1 else f"label_smoothing {label_smoothing} is not between 0 and 1"


def elements(*tensors: TensorProxy) -> str | None:
    """Tensors are not empty; sizes are known when the program is compiled, or vary between calls."""
    for tensor in tensors:
        if any(not isinstance(size, Size) for size in (*tensor.shape, *tensor.stride)):
            return "sizes are not known when the program is compiled"
        if 0 in tensor.shape:
            return "there are no elements"
        if any(least_of(size) < 1 for size in tensor.shape):
            return "there may be no elements, as sizes vary between calls"
    return None
