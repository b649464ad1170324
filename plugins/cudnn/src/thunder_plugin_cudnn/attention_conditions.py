"""Conditions of cuDNN's attention. Each function returns a reason for declining a call, or None.

They follow ``node/sdpa_support_surface.h`` and ``node/scaled_dot_product_flash_attention.h`` of the frontend 1.32,
which raises for the same reasons later. cuDNN itself checks the calls that satisfy them
(`thunder_plugin_cudnn.plans.refusal`).
"""

from __future__ import annotations

import torch
from torch.backends import cuda

from thunder_plugin_composites.attention_calls import AttentionCall
from thunder_plugin_cudnn.layouts import layout_of_proxy, unfit_strides
from thunder_plugin_cudnn.library import Hardware

HALF = (torch.float16, torch.bfloat16)


def unfit_call(call: AttentionCall, device: str) -> str | None:
    """Conditions on any GPU; ``device`` is the required device type."""
    return _plain(call, device) or _dtypes(call) or _sizes(call) or _layouts(call)


def _plain(call: AttentionCall, device: str) -> str | None:
    """Tensors have four dimensions and are on one device; numbers are known when the program is compiled."""
    for name, tensor in call.tensors.items():
        if tensor.layout is not torch.strided:
            return f"{name} has the layout {tensor.layout}"
        if tensor.device.type != device:
            return f"it runs on {device}, and {name} is on {tensor.device}"
        if tensor.device != call.query.device:
            return f"tensors are on {call.query.device} and {tensor.device}"
        if any(not isinstance(size, int) for size in (*tensor.shape, *tensor.stride)):
            return f"sizes of {name} are not known when the program is compiled"
    for name, tensor in call.inputs.items():
        if tensor.ndim != 4:
            return f"{name} has {tensor.ndim} dimensions, not 4"
    if not isinstance(call.dropout, int | float) or not isinstance(call.scale, int | float | None):
        return "dropout_p and scale must be plain numbers"
    if not isinstance(call.causal, bool) or not isinstance(call.grouped, bool):
        return "is_causal and enable_gqa must be bools"
    if call.causal and call.mask is not None:
        return "attn_mask and is_causal exclude each other"
    return None if cuda.cudnn_sdp_enabled() else "cuDNN attention is disabled by sdpa_kernel or torch.backends.cuda"


def _dtypes(call: AttentionCall) -> str | None:
    dtypes = list(dict.fromkeys(tensor.dtype for tensor in call.inputs.values()))
    if len(dtypes) > 1:
        return f"query, key and value have the dtypes {', '.join(map(str, dtypes))}"
    return None if dtypes[0] in HALF else f"{dtypes[0]} is not implemented"


def _sizes(call: AttentionCall) -> str | None:
    """Sizes are consistent, and the number of key heads divides that of query heads."""
    query, key, value = (tensor.shape for tensor in call.inputs.values())
    if any(tensor.numel == 0 for tensor in call.inputs.values()):
        return "a tensor is empty"
    if not query[0] == key[0] == value[0] or key[1:3] != value[1:3] or query[3] != key[3]:
        return f"inconsistent sizes: {tuple(query)}, {tuple(key)}, {tuple(value)}"
    if query[1] != key[1] and not (call.grouped and int(query[1]) % int(key[1]) == 0):
        return f"there are {query[1]} query heads and {key[1]} key heads"
    for size in (query[3], value[3]):
        if int(size) % 8:
            return f"head dimension {size} is not a multiple of 8"
    return None if key[2] != 1 else "there is only one key"


def _layouts(call: AttentionCall) -> str | None:
    reasons = (unfit_strides(name, layout_of_proxy(tensor)) for name, tensor in call.inputs.items())
    return next((reason for reason in reasons if reason is not None), None)


def unfit_size(call: AttentionCall, hardware: Hardware) -> str | None:
    """This GPU has kernels for the head dimensions, also for backward if gradients may be needed."""
    if hardware.capability < (8, 0):
        return f"the GPU has compute capability {'.'.join(map(str, hardware.capability))}, and 8.0 is needed"
    sizes = int(call.query.shape[3]), int(call.value.shape[3])
    major = hardware.capability[0]
    limit = 256 if major == 9 or (major == 8 and not call.differentiated and hardware.version > 90900) else 128
    if major >= 10 and sizes == (192, 128):
        return None
    return None if max(sizes) <= limit else f"head dimension {max(sizes)} is above {limit}, that of this GPU"


def unfit_dropout(call: AttentionCall, allowed: bool) -> str | None:
    """Dropout is enabled by the option, with a probability below 1."""
    if not call.dropout:
        return None
    if not 0 < call.dropout < 1:
        return f"dropout_p is {call.dropout}"
    return None if allowed else "it drops other weights than eager PyTorch; the option dropout enables it"


def unfit_gradient(call: AttentionCall, hardware: Hardware, deterministic: bool) -> str | None:
    """Backward supports the call."""
    if not call.differentiated:
        return None
    if call.query.shape[2] == 1:
        return "there is one query only, and gradients are needed"
    of_mask = call.mask is not None and call.mask.requires_grad
    if deterministic and hardware.capability[0] >= 10 and (call.dropout or of_mask):
        return "deterministic gradients of attention with dropout, or of a mask, are not implemented on this GPU"
    return None
