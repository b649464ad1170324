"""Sharded parameters: a line starts to gather some, and its derivative reduces and scatters their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from thunder_core.symbols import recorded
from thunder_plugin_distributed.collectives import all_gather, all_reduce, reduce_scatter, wait


@recorded
def gather(
    shards: list[torch.Tensor],
    lengths: tuple[int, ...],
    size: int,
    group: str,
    dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    operation: str = "avg",
    before: float = 1.0,
    after: float = 1.0,
    scatter: str = "",
    replicas: str = "",
) -> list[torch.Tensor]:
    """Start to gather parameters along their first dimension, all at once; `arrived` gives what each becomes.

    Ranks whose shard is shorter than the first one's fill it up with zeros, so that a result has at least as many rows
    as the whole parameter. What is gathered is kept for backward.

    Args:
        shards: this rank's parts, of one dtype.
        lengths: rows of the whole parameters.
        size, group: of the ranks that have shards, and the name of their process group.
        dtype: that is gathered; None for that of the shards.
        reduce_dtype: that gradients are reduced in; None for that of the cotangents.
        operation: by which gradients are reduced: ``"avg"`` or ``"sum"``.
        before, after: divide gradients before and after they are reduced.
        scatter: the name of the process group that gradients are reduced and scattered in. Empty: ``group``.
        replicas: the name of the process group of the ranks with the same shard, among which gradients are reduced
            after that. Empty: there are none.
    """
    arguments = (lengths, size, group, dtype, reduce_dtype, operation, before, after, scatter, replicas)
    return _differentiably(shards, arguments)


@recorded
def gather_again(shards: list[torch.Tensor], *arguments: Any) -> list[torch.Tensor]:
    """`gather`, with another gather in backward instead of keeping what arrives; its arguments are the same."""
    return _differentiably(shards, arguments)


@recorded
def arrived(gathered: torch.Tensor) -> torch.Tensor:
    """What `gather` started to gather, once it is there."""
    whole: torch.Tensor = _Arrived.apply(gathered)
    return whole


@recorded
def arrived_again(gathered: torch.Tensor) -> torch.Tensor:
    """The same for `gather_again`."""
    whole: torch.Tensor = _Arrived.apply(gathered)
    return whole


@recorded
def unsharded(
    shards: list[torch.Tensor],
    dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    operation: str = "avg",
    before: float = 1.0,
    after: float = 1.0,
    replicas: str = "",
) -> list[torch.Tensor]:
    """Parameters whose shards are the whole, so that none are gathered; the arguments are those of `gather`."""
    arguments = (dtype, reduce_dtype, operation, before, after, replicas)
    if torch.is_grad_enabled() and any(shard.requires_grad for shard in shards):
        return list(_ByRule.apply(unsharded_rule, arguments, *shards))
    return _whole(shards, dtype)


def unsharded_rule(
    shards: Any,
    dtype: Any = None,
    reduce_dtype: Any = None,
    operation: str = "avg",
    before: float = 1.0,
    after: float = 1.0,
    replicas: str = "",
) -> Any:
    """The derivative of `unsharded`: that of `gather` without what is scattered."""

    def backward(*gradients: Any) -> Any:
        places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        wholes = _divided(gradients, places, reduce_dtype, before)
        if replicas:
            wholes = [wait(part) for part in all_reduce(wholes, operation, replicas)]
        found: list[Any] = [None] * len(shards)
        for place, whole in zip(places, wholes, strict=True):
            found[place] = (whole if after == 1 else whole / after).to(shards[place].dtype)
        return (found,)

    return _whole(shards, dtype), backward


def _whole(shards: list[torch.Tensor], dtype: torch.dtype | None) -> list[torch.Tensor]:
    return [shard.view_as(shard) if dtype in (None, shard.dtype) else shard.to(dtype) for shard in shards]


def _divided(gradients: Any, places: list[int], dtype: Any, before: float) -> list[Any]:
    """The gradients at these places as they are reduced."""
    wholes = [gradients[place] if dtype is None else gradients[place].to(dtype) for place in places]
    return wholes if before == 1 else [whole / before for whole in wholes]


def gather_rule(
    shards: Any,
    lengths: Any,
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

    def backward(*gradients: Any) -> Any:
        places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        wholes = _divided(gradients, places, reduce_dtype, before)
        parts = [wait(part) for part in reduce_scatter(wholes, operation, size, scatter or group)]
        if replicas:
            parts = [wait(part) for part in all_reduce(parts, operation, replicas)]
        found: list[Any] = [None] * len(shards)
        for place, part in zip(places, parts, strict=True):
            rows = shards[place].shape[0]
            whole = (part if after == 1 else part / after).to(shards[place].dtype)
            found[place] = whole if whole.shape[0] == rows else whole.narrow(0, 0, rows)
        return (found,)

    return _gathered(shards, lengths, size, group, dtype), backward


def arrived_rule(gathered: Any) -> Any:
    """The derivative of `arrived` and `arrived_again`."""
    return wait(gathered), lambda gradient: gradient


class _ByRule(torch.autograd.Function):
    """`gather` and `unsharded`, by their rules, for programs that PyTorch's autograd differentiates while they run."""

    @staticmethod
    def forward(
        ctx: Any, rule: Callable[..., Any], arguments: tuple[Any, ...], *shards: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        wholes, ctx.differentiate = rule(list(shards), *arguments)
        return tuple(wholes)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (found,) = ctx.differentiate(*gradients)
        return (None, None, *found)


class _Arrived(torch.autograd.Function):
    """`arrived` for such programs."""

    @staticmethod
    def forward(ctx: Any, gathered: torch.Tensor) -> torch.Tensor:
        whole: torch.Tensor = wait(gathered)
        return whole.view_as(whole) if whole is gathered else whole

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def _differentiably(shards: list[torch.Tensor], arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    if torch.is_grad_enabled() and any(shard.requires_grad for shard in shards):
        return list(_ByRule.apply(gather_rule, arguments, *shards))
    return _gathered(shards, *arguments[:4])


def _gathered(
    shards: list[torch.Tensor], lengths: tuple[int, ...], size: int, group: str, dtype: torch.dtype | None = None
) -> list[torch.Tensor]:
    converted = shards if dtype is None else [shard.to(dtype) for shard in shards]
    padded = [_padded(shard, length, size) for shard, length in zip(converted, lengths, strict=True)]
    gathered: list[torch.Tensor] = all_gather(padded, size, group)
    return gathered


def _padded(shard: torch.Tensor, length: int, size: int) -> torch.Tensor:
    missing = -(-length // size) - shard.shape[0]
    return F.pad(shard, (0, 0) * (shard.ndim - 1) + (0, missing)) if missing else shard
