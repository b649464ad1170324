"""Which products are taken. Each function returns the reason for which it declines, or None."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_cublas.library import TYPES, missing


def tensors(device: str, **named: Any) -> str | None:
    """Dense tensors of one half precision on one device of this type, of known sizes. None stands for absent ones."""
    given = {name: value for name, value in named.items() if value is not None}
    first = next(iter(given.values()))
    for name, tensor in given.items():
        if not isinstance(tensor, TensorProxy) or tensor.layout is not torch.strided:
            return f"{name} is not a dense tensor"
        if tensor.dtype not in TYPES:
            return f"{name} is {tensor.dtype}; float16 and bfloat16 are implemented"
        if tensor.dtype is not first.dtype:
            return f"{name} is {tensor.dtype}, others are {first.dtype}"
        if tensor.device != first.device:
            return f"{name} is on {tensor.device}, others are on {first.device}"
        if not all(isinstance(size, int) for size in tensor.shape):
            return f"the sizes of {name} are not known when the program is compiled"
    return of_machine(first.device, device)


def of_machine(device: torch.device, expected: str) -> str | None:
    """Whether the library can be used there."""
    if device.type != expected:
        return f"tensors are on {device}; cuBLASLt runs on CUDA devices"
    if torch.are_deterministic_algorithms_enabled():
        return "torch.use_deterministic_algorithms is on, and the choice of an algorithm depends on times"
    return missing() if expected == "cuda" else None


def factors(a: TensorProxy, b: TensorProxy, least: int) -> str | None:
    """``a @ b`` of (..., K) and (K, N), as the library reads them and worth a call.

    Args:
        a, b: the factors.
        least: smaller products are declined.
    """
    if b.ndim != 2 or a.ndim < 2:
        return "not a product with one matrix on the right"
    rows = math.prod(a.shape[:-1])
    if min(rows, a.shape[-1], b.shape[1]) < 2:
        return "a factor is a vector, or empty"
    if 2 * rows * a.shape[-1] * b.shape[1] < least:
        return f"fewer than {least} operations, which `least_operations` asks for"
    for name, factor in (("left", a), ("right", b)):
        if not (_is_by_rows(factor) or _is_by_rows(factor, swapped=True)):
            return (
                f"strides {list(factor.stride)} of the {name} factor: neither rows nor columns have adjacent elements"
            )
    return None


def summand(x: TensorProxy, shape: tuple[Any, ...]) -> str | None:
    """What a product is added to: a matrix of the product's shape, with adjacent elements in its rows."""
    if tuple(x.shape) != shape:
        return f"a summand of the shape {list(x.shape)} is added to a product of {list(shape)}"
    if x.stride[1] != 1 or x.stride[0] < shape[1]:
        return f"strides {list(x.stride)} of the summand: the elements of a row are not adjacent"
    return None


def vector(bias: TensorProxy | None, size: Any) -> str | None:
    """A bias of one element for each column of the result, in adjacent elements."""
    if bias is None:
        return None
    if tuple(bias.shape) != (size,):
        return f"the bias has the shape {list(bias.shape)}, not {[size]}"
    return None if bias.contiguous else "the bias is not contiguous"


def _is_by_rows(tensor: TensorProxy, swapped: bool = False) -> bool:
    """Whether the elements of a row are adjacent and all rows at equal distances: a view makes a matrix of them.

    Args:
        tensor: of two or more dimensions; the last is along a row.
        swapped: ask of the transpose of a matrix.
    """
    shape, stride = tuple(tensor.shape), tuple(tensor.stride)
    if swapped:
        if tensor.ndim > 2:
            return False
        shape, stride = shape[::-1], stride[::-1]
    outer = [(size, step) for size, step in zip(reversed(shape[:-1]), reversed(stride[:-1])) if size != 1]
    if stride[-1] != 1 or (outer and outer[0][1] < shape[-1]):
        return False
    return all(step == nearer * size for (size, nearer), (_, step) in itertools.pairwise(outer))
