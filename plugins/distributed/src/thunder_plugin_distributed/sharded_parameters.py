"""Sharded parameters: an op starts to all-gather some, and its derivative reduce-scatters their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F

from thunder_core.symbols import recorded
from thunder_plugin_distributed.accumulated_gradients import casts_before_sums
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
    before: tuple[float, ...] = (),
    after: float = 1.0,
    scatter: str = "",
    replicas: str = "",
    device: str = "",
    *,
    accumulated: Sequence[torch.Tensor | None] = (),
    parts: Sequence[torch.Tensor | None] = (),
    collectors: Sequence[torch.Tensor] = (),
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
        operation: by which gradients are reduced: ``"avg"`` or ``"sum"``; ``""`` if they are not.
        before: numbers that gradients are divided by, one after the other, before they are reduced.
        after: divides gradients after they are reduced.
        scatter: the name of the process group that gradients are reduced and scattered in. Empty: ``group``.
        replicas: the name of the process group of the ranks with the same shard, among which gradients are reduced
            after that. Empty: there are none.
        device: that shards, which are in memory of the host, are copied to and gathered on; gradients are copied back.
            Empty: that of the shards.
        accumulated: gradients of the whole parameters to reduce with those of backward, in the dtype of the reduction;
            None for a parameter without one. Empty: there are none.
        parts: gradients that were reduced and scattered before, to reduce among replicas with those of backward; they
            have the rows of the longest shard. None for a parameter without one. Empty: there are none.
        collectors: tensors whose elements are not read, which get the gradients in place of the shards: those of what
            arrives if no operation reduces them, else reduced ones in the dtype of the reduction with the rows of the
            longest shard. Empty: shards get them.
    """
    arguments = (lengths, size, group, dtype, reduce_dtype, operation, before, after, scatter, replicas, device)
    return _differentiably(shards, arguments, accumulated, parts, collectors)


@recorded
def gather_again(
    shards: list[torch.Tensor],
    *arguments: Any,
    accumulated: Sequence[torch.Tensor | None] = (),
    parts: Sequence[torch.Tensor | None] = (),
    collectors: Sequence[torch.Tensor] = (),
) -> list[torch.Tensor]:
    """`gather`, with another gather in backward instead of keeping what arrives; its arguments are the same."""
    return _differentiably(shards, arguments, accumulated, parts, collectors)


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
    before: tuple[float, ...] = (),
    after: float = 1.0,
    replicas: str = "",
    device: str = "",
    *,
    accumulated: Sequence[torch.Tensor | None] = (),
    parts: Sequence[torch.Tensor | None] = (),
    collectors: Sequence[torch.Tensor] = (),
) -> list[torch.Tensor]:
    """Parameters whose shards are the whole, so that none are gathered; the arguments are those of `gather`."""
    rule = partial(unsharded_rule, accumulated=accumulated, parts=parts, collectors=collectors)
    arguments = (dtype, reduce_dtype, operation, before, after, replicas, device)
    return _by_rule(rule, shards, arguments, collectors) or _whole(shards, dtype, device)


def unsharded_rule(
    shards: Any,
    dtype: Any = None,
    reduce_dtype: Any = None,
    operation: str = "avg",
    before: tuple[float, ...] = (),
    after: float = 1.0,
    replicas: str = "",
    device: str = "",
    *,
    accumulated: Any = (),
    parts: Any = (),
    collectors: Any = (),
) -> Any:
    """The derivative of `unsharded`: that of `gather` without what is scattered."""
    lengths = tuple([shard.shape[0] for shard in shards])
    reduction = (reduce_dtype, operation, before, after, "", replicas, device)
    given = {"accumulated": accumulated, "parts": parts, "collectors": collectors}
    return _whole(shards, dtype, device), _reduction(unsharded_rule, shards, lengths, 1, "", reduction, given)


def _whole(shards: list[torch.Tensor], dtype: torch.dtype | None, device: str) -> list[torch.Tensor]:
    if device:
        return [shard if dtype is None else shard.to(dtype) for shard in _on_device(shards, device)]
    return [shard.view_as(shard) if dtype in (None, shard.dtype) else shard.to(dtype) for shard in shards]


def _on_device(shards: list[torch.Tensor], device: str) -> list[torch.Tensor]:
    """The shards where they are gathered. The copy does not wait: what reads it is on the same stream of the device."""
    return [shard.to(device, non_blocking=True) for shard in shards] if device else shards


def _on_host(gradient: Any, device: str) -> Any:
    """A gradient where the shard is, when the copy is done: an optimizer reads it without waiting for the device."""
    return gradient.cpu() if device else gradient


def _totals(gradients: Any, accumulated: Any, dtype: Any) -> dict[int, Any]:
    """By the place of a parameter its gradient, with what was accumulated before, in the dtype of the reduction."""
    totals: dict[int, Any] = {}
    for place, (gradient, earlier) in enumerate(zip(gradients, accumulated or [None] * len(gradients), strict=True)):
        total = earlier
        if gradient is not None:
            first = earlier is None or casts_before_sums()
            total = gradient.to(dtype) if dtype is not None and first else gradient
            total = total if earlier is None else earlier + total
        if total is not None:
            totals[place] = total if dtype is None else total.to(dtype)
    return totals


def _among_replicas(totals: dict[int, Any], parts: Any, operation: str, replicas: str) -> dict[int, Any]:
    """Gradients by the place of a parameter, with the parts that were reduced before, reduced among replicas."""
    earlier = {place: part for place, part in enumerate(parts) if part is not None}
    sums = {place: total + earlier[place] if place in earlier else total for place, total in totals.items()}
    sums = dict(sorted({**earlier, **sums}.items()))
    if not replicas:
        return sums
    return dict(zip(sums, [wait(part) for part in all_reduce(list(sums.values()), operation, replicas)], strict=True))


def _divided(total: Any, *divisors: float) -> Any:
    for divisor in divisors:
        total = total if divisor == 1 else total / divisor
    return total


def gather_rule(
    shards: Any,
    lengths: Any,
    size: int,
    group: str,
    dtype: Any = None,
    reduce_dtype: Any = None,
    operation: str = "avg",
    before: tuple[float, ...] = (),
    after: float = 1.0,
    scatter: str = "",
    replicas: str = "",
    device: str = "",
    *,
    accumulated: Any = (),
    parts: Any = (),
    collectors: Any = (),
) -> Any:
    """The derivative of `gather` and `gather_again`."""
    reduction = (reduce_dtype, operation, before, after, scatter, replicas, device)
    given = {"accumulated": accumulated, "parts": parts, "collectors": collectors}
    backward = _reduction(gather_rule, shards, lengths, size, group, reduction, given)
    return _gathered(shards, lengths, size, group, dtype, device), backward


@recorded
def owners(
    shards: list[torch.Tensor],
    lengths: tuple[int, ...],
    size: int,
    group: str,
    dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    operation: str = "avg",
    before: tuple[float, ...] = (),
    after: float = 1.0,
    scatter: str = "",
    replicas: str = "",
    device: str = "",
    *,
    accumulated: Sequence[torch.Tensor | None] = (),
    parts: Sequence[torch.Tensor | None] = (),
    collectors: Sequence[torch.Tensor] = (),
) -> list[torch.Tensor]:
    """Collectors for gathers of the same parameters: what all of them collect is reduced at once, when it is summed.

    They have shape, dtype and device of what arrives. Their elements are undefined, and share the memory of one. The
    arguments are those of `gather`.
    """
    rule = partial(owners_rule, accumulated=accumulated, parts=parts, collectors=collectors)
    reduction = (reduce_dtype, operation, before, after, scatter, replicas, device)
    arguments = (lengths, size, group, dtype, *reduction)
    return _by_rule(rule, shards, arguments, collectors) or _undefined(shards, lengths, size, dtype, device)


def owners_rule(
    shards: Any,
    lengths: Any,
    size: int,
    group: str,
    dtype: Any = None,
    reduce_dtype: Any = None,
    operation: str = "avg",
    before: tuple[float, ...] = (),
    after: float = 1.0,
    scatter: str = "",
    replicas: str = "",
    device: str = "",
    *,
    accumulated: Any = (),
    parts: Any = (),
    collectors: Any = (),
) -> Any:
    """The derivative of `owners`: that of `gather`."""
    reduction = (reduce_dtype, operation, before, after, scatter, replicas, device)
    given = {"accumulated": accumulated, "parts": parts, "collectors": collectors}
    backward = _reduction(owners_rule, shards, lengths, size, group, reduction, given)
    return _undefined(shards, lengths, size, dtype, device), backward


def _undefined(
    shards: list[torch.Tensor], lengths: tuple[int, ...], size: int, dtype: torch.dtype | None, device: str
) -> list[torch.Tensor]:
    return [
        torch.empty((), dtype=dtype or shard.dtype, device=device or shard.device).expand(
            -(-length // size) * size, *shard.shape[1:]
        )
        for shard, length in zip(shards, lengths, strict=True)
    ]


def _reduction(
    rule: Callable[..., Any],
    shards: Any,
    lengths: Any,
    size: int,
    group: str,
    reduction: tuple[Any, ...],
    given: dict[str, Any],
) -> Callable[..., Any]:
    """What reduces gradients of gathered parameters, in the order in which FSDP2 computes it.

    Args:
        rule: that returns it.
        reduction: the arguments of `gather` from ``reduce_dtype`` on.
        given: its keyword arguments.
    """
    dtype, operation, before, after, scatter, replicas, device = reduction

    def of_collectors(gradients: list[Any]) -> tuple[Any, ...]:
        return (*[None] * list(signature(rule).parameters).index("collectors"), gradients)

    def backward(*gradients: Any) -> Any:
        if not operation:
            return of_collectors(list(gradients))
        rows = [-(-length // size) * size for length in lengths]
        earlier = [_filled(total, count) for total, count in zip(given["accumulated"], rows, strict=False)]
        totals = _totals(gradients, earlier, dtype)
        wholes = [_divided(total, *before) for total in totals.values()]
        if size > 1:
            wholes = [wait(part) for part in reduce_scatter(wholes, operation, size, scatter or group)]
        reduced = _among_replicas(dict(zip(totals, wholes, strict=True)), given["parts"], operation, replicas)
        if given["collectors"]:
            return of_collectors([reduced.get(place) for place in range(len(shards))])
        found: list[Any] = [None] * len(shards)
        for place, part in reduced.items():
            rows = shards[place].shape[0]
            whole = _divided(part, after).to(shards[place].dtype)
            found[place] = _on_host(whole if whole.shape[0] == rows else whole.narrow(0, 0, rows), device)
        return (found,)

    return backward


def arrived_rule(gathered: Any) -> Any:
    """The derivative of `arrived` and `arrived_again`."""
    return wait(gathered), lambda gradient: gradient


class _ByRule(torch.autograd.Function):
    """`gather` and `unsharded`, by their rules, for programs that PyTorch's autograd differentiates while they run.

    The tensors that get gradients are shards or collectors.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rule: Callable[..., Any],
        shards: list[torch.Tensor],
        arguments: tuple[Any, ...],
        *owners: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        wholes, ctx.differentiate = rule([shard.detach() for shard in shards], *arguments)
        return tuple(wholes)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        *_, found = ctx.differentiate(*gradients)
        return (None, None, None, *found)


class _Arrived(torch.autograd.Function):
    """`arrived` for such programs."""

    @staticmethod
    def forward(ctx: Any, gathered: torch.Tensor) -> torch.Tensor:
        whole: torch.Tensor = wait(gathered)
        return whole.view_as(whole) if whole is gathered else whole

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def _differentiably(
    shards: list[torch.Tensor],
    arguments: tuple[Any, ...],
    accumulated: Sequence[torch.Tensor | None],
    parts: Sequence[torch.Tensor | None],
    collectors: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    rule = partial(gather_rule, accumulated=accumulated, parts=parts, collectors=collectors)
    return _by_rule(rule, shards, arguments, collectors) or _gathered(shards, *arguments[:4], *arguments[10:])


def _by_rule(
    rule: Callable[..., Any], shards: list[torch.Tensor], arguments: Any, collectors: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The results of a rule if autograd has to differentiate them, else none."""
    owners = collectors or shards
    if torch.is_grad_enabled() and any(owner.requires_grad for owner in owners):
        return list(_ByRule.apply(rule, shards, arguments, *owners))
    return []


def _gathered(
    shards: list[torch.Tensor],
    lengths: tuple[int, ...],
    size: int,
    group: str,
    dtype: torch.dtype | None = None,
    device: str = "",
) -> list[torch.Tensor]:
    there = _on_device(shards, device)
    converted = there if dtype is None else [shard.to(dtype) for shard in there]
    padded = [_padded(shard, length, size) for shard, length in zip(converted, lengths, strict=True)]
    gathered: list[torch.Tensor] = all_gather(padded, size, group)
    return gathered


def _padded(shard: torch.Tensor, length: int, size: int) -> torch.Tensor:
    missing = -(-length // size) - shard.shape[0]
    return F.pad(shard, (0, 0) * (shard.ndim - 1) + (0, missing)) if missing else shard


def _filled(whole: Any, rows: int) -> Any:
    """The gradient of a whole parameter, filled with zeros to the rows of what is gathered; None for None."""
    missing = 0 if whole is None else rows - whole.shape[0]
    return F.pad(whole, (0, 0) * (whole.ndim - 1) + (0, missing)) if missing else whole
