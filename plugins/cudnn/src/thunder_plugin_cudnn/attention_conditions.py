"""What cuDNN's attention asks of a call: functions that return why it does not fit, or None.

They follow ``node/sdpa_support_surface.h`` and ``node/scaled_dot_product_flash_attention.h`` of the frontend 1.32,
which raises the same later. What they let pass, cuDNN itself is asked for (`thunder_plugin_cudnn.plans.refusal`).
"""

from __future__ import annotations

import torch
from torch.backends import cuda

from thunder_core.passes.attention import AttentionCall
from thunder_plugin_cudnn.layouts import layout_of_proxy, unfit_strides
from thunder_plugin_cudnn.library import Hardware

HALF = (torch.float16, torch.bfloat16)


def unfit_call(call: AttentionCall, device: str) -> str | None:
    """What holds for any GPU; ``device`` is the type that is asked for."""
    return _plain(call, device) or _dtypes(call) or _sizes(call) or _layouts(call)


def _plain(call: AttentionCall, device: str) -> str | None:
    """Tensors of four dimensions on one device, and numbers that are known when the program is compiled."""
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
        return "is_causal and enable_gqa must be plain truth values"
    if call.causal and call.mask is not None:
        return "attn_mask and is_causal exclude each other"
    return (
        None if cuda.cudnn_sdp_enabled() else "cuDNN attention is switched off, by sdpa_kernel or torch.backends.cuda"
    )


def _dtypes(call: AttentionCall) -> str | None:
    found = list(dict.fromkeys(tensor.dtype for tensor in call.inputs.values()))
    if len(found) > 1:
        return f"query, key and value have the dtypes {', '.join(map(str, found))}"
    return None if found[0] in HALF else f"{found[0]} is not implemented"


def _sizes(call: AttentionCall) -> str | None:
    """Sizes that belong together, and heads of keys that divide those of queries."""
    query, key, value = (tensor.shape for tensor in call.inputs.values())
    if any(tensor.numel == 0 for tensor in call.inputs.values()):
        return "a tensor is empty"
    if not query[0] == key[0] == value[0] or key[1:3] != value[1:3] or query[3] != key[3]:
        return f"sizes do not fit together: {tuple(query)}, {tuple(key)}, {tuple(value)}"
    if query[1] != key[1] and not (call.grouped and int(query[1]) % int(key[1]) == 0):
        return f"there are {query[1]} heads of queries and {key[1]} of keys"
    for size in (query[3], value[3]):
        if int(size) % 8:
            return f"head dimension {size} is not a multiple of 8"
    return None if key[2] != 1 else "there is one key only"


def _layouts(call: AttentionCall) -> str | None:
    reasons = (unfit_strides(name, layout_of_proxy(tensor)) for name, tensor in call.inputs.items())
    return next((reason for reason in reasons if reason is not None), None)


def unfit_size(call: AttentionCall, hardware: Hardware) -> str | None:
    """Head dimensions that this GPU has no kernel for, in backward where gradients may be asked for."""
    if hardware.capability < (8, 0):
        return f"the GPU has compute capability {'.'.join(map(str, hardware.capability))}, and 8.0 is needed"
    sizes = int(call.query.shape[3]), int(call.value.shape[3])
    major = hardware.capability[0]
    limit = 256 if major == 9 or (major == 8 and not call.differentiated and hardware.version > 90900) else 128
    if major >= 10 and sizes == (192, 128):
        return None
    return None if max(sizes) <= limit else f"head dimension {max(sizes)} is above {limit}, that of this GPU"


def unfit_dropout(call: AttentionCall, allowed: bool) -> str | None:
    """Dropout needs the option, and a probability below 1."""
    if not call.dropout:
        return None
    if not 0 < call.dropout < 1:
        return f"dropout_p is {call.dropout}"
    return None if allowed else "it drops other weights than eager PyTorch; the option dropout allows that"


def unfit_gradient(call: AttentionCall, hardware: Hardware, deterministic: bool) -> str | None:
    """What backward does not do."""
    if not call.differentiated:
        return None
    if call.query.shape[2] == 1:
        return "there is one query only, and gradients are needed"
    of_mask = call.mask is not None and call.mask.requires_grad
    if deterministic and hardware.capability[0] >= 10 and (call.dropout or of_mask):
        return "deterministic gradients of attention with dropout, or of a mask, are not implemented on this GPU"
    return None
