"""Tensors that nvFuser supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_nvfuser.definition import DATA_TYPES

_MOST_DIMENSIONS: Final = 8


def unsuitable_op(proxies: Sequence[TensorProxy], device_type: str) -> str | None:
    """The reason why an operation with these arguments and results is declined; None if it is not."""
    devices = {proxy.device for proxy in proxies}
    if len(devices) != 1:
        return f"it works on {len(devices)} devices" if devices else "it has no tensors"
    device = next(iter(devices))
    if device.type != device_type:
        return f"nvFuser runs on {device_type}, and it works on {device}"
    return next((reason for proxy in proxies if (reason := unsuitable_tensor(proxy)) is not None), None)


def unsuitable_tensor(proxy: TensorProxy) -> str | None:
    """The reason why nvFuser does not support a tensor; None if it does."""
    if proxy.layout is not torch.strided:
        return "it has sparse tensors"
    if proxy.dtype not in DATA_TYPES:
        return f"nvFuser does not compute with {proxy.dtype}"
    if proxy.ndim > _MOST_DIMENSIONS:
        return f"it works on {proxy.ndim} dimensions, and nvFuser on at most {_MOST_DIMENSIONS}"
    if not all(isinstance(size, int) for size in proxy.shape):
        return "its sizes are symbolic"
    return "it has empty tensors" if 0 in proxy.shape else None
