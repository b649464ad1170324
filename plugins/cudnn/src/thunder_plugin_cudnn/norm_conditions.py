"""Conditions of cuDNN's normalizations. Each function returns a reason for declining a call, or None."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_cudnn import library, plans
from thunder_plugin_cudnn.norm_graphs import Kind, norm_backward, norm_forward
from thunder_plugin_cudnn.norms import row_size

DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16)
LARGEST: Final = 2**31


def unfit(
    kind: Kind,
    device: str,
    input: TensorProxy,
    shape: tuple[Any, ...],
    parameters: dict[str, TensorProxy],
    eps: Any,
    of_weight: torch.dtype | None,
) -> str | None:
    """Conditions of the plugin, followed by cuDNN's check, which compiles the graphs of the call.

    Args:
        kind: the normalization.
        device: the required device type.
        input: the input.
        shape: the last dimensions of the input, which are normalized together.
        parameters: weight and bias, if present.
        eps: the epsilon.
        of_weight: the dtype of the weight for cuDNN.
    """
    for name, tensor in {"input": input, **parameters}.items():
        if any(not isinstance(size, int) for size in (*tensor.shape, *tensor.stride)):
            return f"sizes of {name} are not known when the program is compiled"
        if tensor.device.type != device:
            return f"it runs on {device}, and {name} is on {tensor.device}"
        if tensor.device != input.device:
            return f"tensors are on {input.device} and {tensor.device}"
        if not tensor.contiguous:
            return f"{name} is not contiguous"
    for name, tensor in parameters.items():
        if tensor.shape != shape:
            return f"{name} has the shape {tuple(tensor.shape)}, not {shape}"
    if input.dtype not in DTYPES:
        return f"{input.dtype} is not implemented"
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        return "eps is not a plain number"
    if kind == "layernorm" and row_size(shape) == 1:
        return "rows have one element, for which cuDNN's gradient is not zero"
    if not 0 < input.numel < LARGEST:
        return f"input has {input.numel} elements"
    hardware = library.hardware(input.device.index)
    if hardware is None:
        return "there is no CUDA device"
    return library.unfit_version(hardware.version) or _refusal(kind, input, shape, parameters, eps, of_weight)


def _refusal(
    kind: Kind,
    input: TensorProxy,
    shape: tuple[Any, ...],
    parameters: dict[str, TensorProxy],
    eps: float,
    of_weight: torch.dtype | None,
) -> str | None:
    size = row_size(shape)
    rows = int(input.numel) // size
    differentiated = any(tensor.requires_grad for tensor in (input, *parameters.values()))
    of_bias = parameters["bias"].dtype if "bias" in parameters else None
    description = (kind, rows, size, input.dtype, of_weight, of_bias, eps, differentiated)
    reason = plans.refusal(norm_forward, input.device, description)
    if reason is None and differentiated:
        reason = plans.refusal(norm_backward, input.device, description[:5])
    return reason
