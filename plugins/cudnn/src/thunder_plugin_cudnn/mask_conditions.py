"""Conditions of cuDNN's attention on ``attn_mask``."""

from __future__ import annotations

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_composites.attention_calls import AttentionCall


def unfit_mask(call: AttentionCall) -> str | None:
    """The reason for declining the mask; None if it is supported, or if there is none."""
    mask = call.mask
    if mask is None:
        return None
    if mask.dtype not in (torch.bool, torch.float32, call.query.dtype):
        return f"attn_mask is {mask.dtype}, and query {call.query.dtype}"
    full = (*call.query.shape[:3], call.key.shape[2])
    broadcast = all(size in (1, whole) for size, whole in zip(reversed(mask.shape[:-1]), reversed(full[:-1])))
    if not 2 <= mask.ndim <= 4 or mask.shape[-1] != full[3] or not broadcast:
        return f"attn_mask has the shape {tuple(mask.shape)}, and {tuple(full)} is needed"
    if full[2] != 1 and (mask.shape[-2] == 1 or mask.stride[-2] == 0):
        return "attn_mask is the same for all queries, for which cuDNN's results were wrong (9.19 on an H200)"
    if mask.stride[-1] != 1 and mask.dtype is not torch.bool:
        return f"the last stride of attn_mask is {mask.stride[-1]}, not 1"
    if call.differentiated and full[3] % 128 == 64:  # https://github.com/pytorch/pytorch/issues/196678
        return f"gradients may be NaN with attn_mask and {full[3]} keys: cuDNN pads them to 128 with logits of 0"
    return _unfit_gradient(call, mask) if mask.requires_grad else None


def _unfit_gradient(call: AttentionCall, mask: TensorProxy) -> str | None:
    """The gradient is summed over broadcast dimensions, and written with the strides of a dense mask."""
    if mask.dtype is not call.query.dtype:
        return f"attn_mask, whose gradient is needed, is {mask.dtype}, and query {call.query.dtype}"
    if mask.shape[-2] != call.query.shape[2]:
        return "attn_mask, whose gradient is needed, is the same for all queries"
    return None if mask.contiguous else "attn_mask, whose gradient is needed, is not contiguous"
