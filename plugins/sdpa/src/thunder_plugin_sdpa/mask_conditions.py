"""Conditions of kernels on ``attn_mask``. Each function returns a reason for declining a call, or None."""

from __future__ import annotations

import torch

from thunder_plugin_sdpa.call import Call


def no_mask(call: Call) -> str | None:
    """No mask other than the causal one."""
    return None if call.mask is None else "it does not support attn_mask"


def mask_dtype(call: Call) -> str | None:
    """Bool, or the dtype of the query."""
    mask = call.mask
    if mask is None or mask.dtype in (torch.bool, call.query.dtype):
        return None
    return f"attn_mask is {mask.dtype}, and query {call.query.dtype}"


def constant_mask(call: Call) -> str | None:
    """A mask that does not require grad."""
    if call.mask is not None and call.mask.requires_grad:
        return "it does not compute the gradient of attn_mask"
    return None


def mask_shape(call: Call) -> str | None:
    """A mask of two or four dimensions that broadcasts to (batch, heads, queries, keys)."""
    if call.mask is None:
        return None
    full = (*call.query.shape[:3], call.key.shape[2])
    shape = call.mask.shape
    fits = all(size in (1, whole) for size, whole in zip(reversed(shape), reversed(full)))
    return None if len(shape) in (2, 4) and fits else f"attn_mask has the shape {tuple(shape)}, and {full} is needed"


def finite_gradients(call: Call) -> str | None:
    """The number of keys is not one for which cuDNN's gradient of the query is NaN if a mask leaves very small logits.

    Its kernel processes 128 keys at a time, and counts the padding of half of them as logits of 0
    (https://github.com/pytorch/pytorch/issues/196678).
    """
    keys = call.key.shape[2]
    if call.mask is None or not call.differentiated or (isinstance(keys, int) and keys % 128 != 64):
        return None
    return f"its gradients may be NaN with attn_mask and {keys} keys"
