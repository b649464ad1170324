"""Sharded parameters: a line starts to gather one, and its derivative reduces and scatters the gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from thunder_core.symbols import recorded
from thunder_plugin_distributed.collectives import all_gather, all_reduce, reduce_scatter, wait


@recorded
def gather(
    shard: torch.Tensor,
    length: int,
    size: int,
    group: str,
    dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    operation: str = "avg",
    before: float = 1.0,
    after: float = 1.0,
    scatter: str = "",
    replicas: str = "",
) -> torch.Tensor:
    """Start to gather the shards of all ranks along the first dimension; `wait` gives what arrives.

    Ranks whose shard is shorter than the first one's fill it up with zeros, so that the result has at least ``length``
    rows. What is gathered is kept for backward.

    Args:
        shard: this rank's part.
        length: rows of the whole parameter.
        size, group: of the ranks that have shards, and the name of their process group.
        dtype: that is gathered; None for that of the shard.
        reduce_dtype: that gradients are reduced in; None for that of the cotangent.
        operation: by which gradients are reduced: ``"avg"`` or ``"sum"``.
        before, after: divide gradients before and after they are reduced.
        scatter: the name of the process group that gradients are reduced and scattered in. Empty: ``group``.
        replicas: the name of the process group of the ranks with the same shard, among which gradients are reduced
            after that. Empty: there are none.
    """
    gathered: torch.Tensor = all_gather(_padded(shard if dtype is None else shard.to(dtype), length, size), size, group)
    return gathered


@recorded
def gather_again(
    shard: torch.Tensor,
    length: int,
    size: int,
    group: str,
    dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    operation: str = "avg",
    before: float = 1.0,
    after: float = 1.0,
    scatter: str = "",
    replicas: str = "",
) -> torch.Tensor:
    """`gather`, with another gather in backward instead of keeping what arrives."""
    gathered: torch.Tensor = all_gather(_padded(shard if dtype is None else shard.to(dtype), length, size), size, group)
    return gathered


@recorded
def arrived(gathered: torch.Tensor) -> torch.Tensor:
    """What `gather` started to gather, once it is there."""
    whole: torch.Tensor = wait(gathered)
    return whole


@recorded
def arrived_again(gathered: torch.Tensor) -> torch.Tensor:
    """The same for `gather_again`."""
    whole: torch.Tensor = wait(gathered)
    return whole


def gather_rule(
    shard: Any,
    length: int,
    size: int,
    group: str,
    dtype: Any = None,
    reduce_dtype: Any = None,
    operation: str = "avg",
    before: float = 1.0,
    after: float = 1.0,
    scatter: str = "",
    replicas: str = "",
) -> Any:
    """The derivative of `gather` and `gather_again`, in the order in which FSDP2 computes it."""
    local = shard if dtype is None else shard.to(dtype)

    def backward(gradient: Any) -> Any:
        whole = gradient if reduce_dtype is None else gradient.to(reduce_dtype)
        part = wait(reduce_scatter(whole if before == 1 else whole / before, operation, size, scatter or group))
        if replicas:
            part = wait(all_reduce(part, operation, replicas))
        part = (part if after == 1 else part / after).to(shard.dtype)
        return part if part.shape[0] == shard.shape[0] else part.narrow(0, 0, shard.shape[0])

    return all_gather(_padded(local, length, size), size, group), backward


def arrived_rule(gathered: Any) -> Any:
    """The derivative of `arrived` and `arrived_again`."""
    return wait(gathered), lambda gradient: gradient


def _padded(shard: torch.Tensor, length: int, size: int) -> torch.Tensor:
    missing = -(-length // size) - shard.shape[0]
    return F.pad(shard, (0, 0) * (shard.ndim - 1) + (0, missing)) if missing else shard
