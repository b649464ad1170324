"""Which tensors nvFuser works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_nvfuser.definition import DATA_TYPES

_MOST_DIMENSIONS: Final = 8


def unsuitable_line(proxies: Sequence[TensorProxy], device_type: str) -> str | None:
    """Why a line with these arguments and results cannot be in a region; None if it can."""
    devices = {proxy.device for proxy in proxies}
    if len(devices) != 1:
        return f"it works on {len(devices)} devices" if devices else "it works on no tensors"
    device = next(iter(devices))
    if device.type != device_type:
        return f"nvFuser runs on {device_type}, and it works on {device}"
    return next((reason for proxy in proxies if (reason := unsuitable_tensor(proxy)) is not None), None)


def unsuitable_tensor(proxy: TensorProxy) -> str | None:
    """Why nvFuser has no such tensors; None if it has."""
    if proxy.layout is not torch.strided:
        return "it works on sparse tensors"
    if proxy.dtype not in DATA_TYPES:
        return f"nvFuser does not compute with {proxy.dtype}"
    if proxy.ndim > _MOST_DIMENSIONS:
        return f"it works on {proxy.ndim} dimensions, and nvFuser on at most {_MOST_DIMENSIONS}"
    if not all(isinstance(size, int) for size in proxy.shape):
        return "its sizes are symbols"
    return "it works on tensors without elements" if 0 in proxy.shape else None
