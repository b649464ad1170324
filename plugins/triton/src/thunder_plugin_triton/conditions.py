"""Conditions of kernels on the tensors of a call. Each function returns a reason for declining, or None."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import least_of
from thunder_plugin_triton.environment import refusal_of_device

FLOATING: Final = (torch.float32, torch.float16, torch.bfloat16)


def tensors(**named: Any) -> str | None:
    """Floating-point tensors are on one device, on which kernels run. None represents an absent tensor."""
    given = {name: value for name, value in named.items() if value is not None}
    device = None
    for name, tensor in given.items():
        if not isinstance(tensor, TensorProxy) or tensor.layout is not torch.strided:
            return f"{name} is not a dense tensor"
        if tensor.dtype not in FLOATING:
            return f"{name} is {tensor.dtype}; float32, float16 and bfloat16 are implemented"
        device = device or tensor.device
        if tensor.device != device:
            return f"{name} is on {tensor.device}, others are on {device}"
    return None if device is None else refusal_of_device(device)


def rows(tensor: TensorProxy, dimensions: int = 1) -> str | None:
    """The last ``dimensions`` are contiguous, and all others form rows in order, at equal distances.

    PyTorch's results for such tensors are contiguous.
    """
    shape, stride = tensor.shape, tensor.stride
    split = len(shape) - dimensions
    expected: Any = 1
    for size, step in zip(reversed(shape[split:]), reversed(stride[split:])):
        if size != 1 and step != expected:
            return f"strides {list(stride)}: the elements of a row are not adjacent"
        expected = expected * size
    following: Any = None
    for size, step in zip(reversed(shape[:split]), reversed(stride[:split])):
        if size == 1:
            continue
        if following is None and step != expected and step < expected:
            return f"strides {list(stride)}: rows overlap"
        if following is not None and step != following:
            return f"strides {list(stride)}: rows are not at equal distances"
        following = step * size
    return None


def width(size: Any, largest: int | None = None) -> str | None:
    """Rows are not empty, and not too long for one program."""
    if size == 0:
        return "rows are empty"
    if least_of(size) < 1:
        return "rows may be empty, as their length varies between calls"
    return f"rows of {size} elements: at most {largest} are implemented" if largest and size > largest else None


def parameter(name: str, tensor: TensorProxy | None, shape: tuple[Any, ...]) -> str | None:
    """A weight or bias has the shape of a row and is contiguous."""
    if tensor is None:
        return None
    if tensor.shape != shape:
        return f"{name} has the shape {list(tensor.shape)}, not {list(shape)}"
    return None if tensor.contiguous else f"{name} is not contiguous"
