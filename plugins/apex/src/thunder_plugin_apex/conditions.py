"""Conditions of the kernels. Each function returns a reason for declining a call, or None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from thunder_core.ir.proxy import TensorProxy

DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)
LARGEST: Final = 2**31
"""The kernels count elements in 32 bits."""


def unfit(device: str, tensors: Mapping[str, TensorProxy]) -> str | None:
    """Tensors are dense and on one device of this type."""
    first = next(iter(tensors.values()))
    for name, tensor in tensors.items():
        if any(not isinstance(size, int) for size in (*tensor.shape, *tensor.stride)):
            return f"sizes of {name} are not known when the program is compiled"
        if tensor.device.type != device:
            return f"it runs on {device}, and {name} is on {tensor.device}"
        if tensor.device != first.device:
            return f"tensors are on {first.device} and {tensor.device}"
        if not tensor.contiguous:
            return f"{name} is not contiguous"
        if tensor.numel == 0:
            return f"{name} is empty"
        if tensor.numel >= LARGEST:
            return f"{name} has {tensor.numel} elements, and the kernels support up to {LARGEST}"
    return None


def unfit_dtype(tensor: TensorProxy) -> str | None:
    """The kernels support the dtype of logits or of the normalized tensor."""
    return None if tensor.dtype in DTYPES else f"{tensor.dtype} is not implemented"


def unfit_number(name: str, value: Any) -> str | None:
    """The argument is a number that is known when the program is compiled."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return None if plain else f"{name} is {value if value is None else type(value).__name__}, not a plain number"
