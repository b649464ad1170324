"""Gradients of whole parameters that `fully_shard` accumulates without communication.

After ``set_requires_gradient_sync(False)`` backward accumulates the whole gradient of a parameter on each rank, until a
backward with communication reduces it. Programs store it where eager PyTorch does, so calls of both can alternate.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import torch

from thunder_plugin_distributed import pytorch_internals


def is_accumulating(group: Any) -> bool:
    """Whether backward accumulates the gradients of a group without reducing them."""
    return not group.reduce_grads


def reduction_dtype(sharded: Any) -> torch.dtype | None:
    """The dtype in which the gradient of a parameter is accumulated and reduced; None for the dtype of the gradient."""
    # Since PyTorch 2.15 gradients are reduced in the parameter's dtype if the policy has none.
    dtype: torch.dtype | None = getattr(sharded, "unsharded_grad_dtype", sharded.reduce_dtype)
    return dtype


def layout_of(sharded: Any) -> Any:
    """The DTensorSpec that a parameter had before `fully_shard` was applied; None for a plain one."""
    if not sharded.is_dtensor:
        return None
    return sharded._unsharded_dtensor_spec if hasattr(sharded, "_unsharded_dtensor_spec") else sharded._tp_spec


def accumulated(sharded: Any) -> torch.Tensor | None:
    """The accumulated gradient of a whole parameter; None if there is none.

    It is a DTensor if the parameter was one before `fully_shard` was applied.
    """
    gradient: torch.Tensor | None = sharded.unsharded_accumulated_grad
    if gradient is None and hasattr(sharded, "_unsharded_param"):
        gradient = sharded._unsharded_param.grad  # where older versions store it unless it has another dtype
    return gradient


@torch.no_grad()
def accumulate(sharded: Any, gradient: torch.Tensor) -> None:
    """Add a gradient of the whole parameter to the accumulated one, in the dtype of reductions.

    Args:
        gradient: with tensor parallelism, the gradient of this rank's part. It may share memory with other tensors.
    """
    before = accumulated(sharded)
    if before is not None:
        part = local_part(before)
        part.add_(gradient.to(part.dtype) if casts_before_sums() else gradient)
        return
    total = gradient.to(reduction_dtype(sharded) or sharded.param_dtype or sharded.orig_dtype, copy=True)
    layout = layout_of(sharded)
    if layout is not None:
        metadata = layout.tensor_meta._replace(dtype=total.dtype)
        total = pytorch_internals.from_local_no_grad(total, replace(layout, tensor_meta=metadata))
    if casts_before_sums():
        sharded._unsharded_param.grad = total
    else:
        sharded.unsharded_accumulated_grad = total


def local_part(gradient: Any) -> torch.Tensor:
    """The part of an accumulated gradient on this rank."""
    part: torch.Tensor = getattr(gradient, "_local_tensor", gradient)
    return part


def release(sharded: Any) -> None:
    """Delete the accumulated gradient."""
    if not casts_before_sums():
        sharded.unsharded_accumulated_grad = None
    if hasattr(sharded, "_unsharded_param"):
        sharded._unsharded_param.grad = None


@cache
def casts_before_sums() -> bool:
    """Whether a gradient is cast before it is added to the accumulated one; otherwise their sum is cast.

    In newer versions of PyTorch autograd accumulates it in the whole parameter, which has a `grad_dtype`.
    """
    return hasattr(pytorch_internals.fsdp_param, "unsharded_accumulated_grad")
