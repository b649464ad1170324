"""Sharded parameters: an op starts an all-gather of them, and its derivative reduce-scatters their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypedDict, Unpack

import torch
import torch.nn.functional as F

from thunder_core.symbols import recorded
from thunder_plugin_distributed.accumulated_gradients import casts_before_sums
from thunder_plugin_distributed.collectives import all_gather, all_reduce, reduce_scatter, wait
from thunder_plugin_distributed.sharding import Sharding

Tensors = list[torch.Tensor]


class Gradients(TypedDict, total=False):
    """Gradients that backward adds, and receivers of its results: lists with an item for each parameter, or empty.

    Attributes:
        accumulated: accumulated gradients of the whole parameters, which are reduced together with those of backward,
            in the dtype of the reduction; None for a parameter without one.
        parts: gradients that were reduced and scattered before, which are reduced among replicas together with those of
            backward; they have the rows of the longest shard. None for a parameter without one.
        collectors: tensors whose elements are not read, which receive the gradients in place of the shards: gradients
            of the gathered tensors if no operation reduces them, else reduced gradients in the dtype of the reduction,
            with the rows of the longest shard. Empty: the shards receive the gradients.
    """

    accumulated: Sequence[torch.Tensor | None]
    parts: Sequence[torch.Tensor | None]
    collectors: Sequence[torch.Tensor]


@recorded
def gather(shards: Tensors, lengths: tuple[int, ...], sharding: Sharding, **gradients: Unpack[Gradients]) -> Tensors:
    """Start an all-gather of several parameters along their first dimension; `arrived` returns the gathered tensors.

    Shards that are shorter than that of the first rank are padded with zeros, so that a result has at least as many
    rows as the whole parameter. The gathered tensors are saved for backward.

    Args:
        shards: the shards of this rank, of one dtype.
        lengths: the numbers of rows of the whole parameters.
        sharding: how parameters are gathered and gradients are reduced.
        gradients: the other gradients that backward reads, and the tensors that receive its results.
    """
    return _differentiable(_gathered, shards, lengths, sharding, gradients)


@recorded
def gather_again(
    shards: Tensors, lengths: tuple[int, ...], sharding: Sharding, **gradients: Unpack[Gradients]
) -> Tensors:
    """`gather`, but backward gathers the parameters again instead of using saved ones."""
    return _differentiable(_gathered, shards, lengths, sharding, gradients)


@recorded
def arrived(gathered: torch.Tensor) -> torch.Tensor:
    """A result of `gather`, once it is complete."""
    whole: torch.Tensor = _Arrived.apply(gathered)
    return whole


@recorded
def arrived_again(gathered: torch.Tensor) -> torch.Tensor:
    """The same for `gather_again`."""
    whole: torch.Tensor = _Arrived.apply(gathered)
    return whole


@recorded
def unsharded(shards: Tensors, lengths: tuple[int, ...], sharding: Sharding, **gradients: Unpack[Gradients]) -> Tensors:
    """`gather` for parameters with one shard: nothing is gathered, and gradients are not scattered."""
    return _differentiable(_whole, shards, lengths, sharding, gradients)


@recorded
def owners(shards: Tensors, lengths: tuple[int, ...], sharding: Sharding, **gradients: Unpack[Gradients]) -> Tensors:
    """Collectors for several gathers of the same parameters: the sum of their gradients is reduced once.

    They are expanded, uninitialized tensors of one element, with the shape, dtype and device of the gathered tensors.
    The arguments are those of `gather`.
    """
    return _differentiable(_undefined, shards, lengths, sharding, gradients)


Forward = Callable[[Tensors, tuple[int, ...], Sharding], Tensors]
"""The result of one of these functions, without a derivative."""


def _gathered(shards: Tensors, lengths: tuple[int, ...], sharding: Sharding) -> Tensors:
    there = _on_device(shards, sharding.device)
    converted = there if sharding.dtype is None else [shard.to(sharding.dtype) for shard in there]
    rows = [sharding.padded(length) // sharding.size for length in lengths]
    padded = [_padded(shard, count) for shard, count in zip(converted, rows, strict=True)]
    gathered: Tensors = all_gather(padded, sharding.size, sharding.group)
    return gathered


def _whole(shards: Tensors, lengths: tuple[int, ...], sharding: Sharding) -> Tensors:
    dtype = sharding.dtype
    if sharding.device:
        return [shard if dtype is None else shard.to(dtype) for shard in _on_device(shards, sharding.device)]
    return [shard.view_as(shard) if dtype in (None, shard.dtype) else shard.to(dtype) for shard in shards]


def _undefined(shards: Tensors, lengths: tuple[int, ...], sharding: Sharding) -> Tensors:
    return [
        torch.empty((), dtype=sharding.dtype or shard.dtype, device=sharding.device or shard.device).expand(
            sharding.padded(length), *shard.shape[1:]
        )
        for shard, length in zip(shards, lengths, strict=True)
    ]


def _on_device(shards: Tensors, device: str) -> Tensors:
    """The shards on the device of the gather. The copy is asynchronous: its readers run on the same stream."""
    return [shard.to(device, non_blocking=True) for shard in shards] if device else shards


def _on_host(gradient: Any, device: str) -> Any:
    """A gradient on the device of the shard. The copy is synchronous, since an optimizer on the CPU reads it next."""
    return gradient.cpu() if device else gradient


def _padded(tensor: Any, rows: int) -> Any:
    """A tensor filled with zeros to a number of rows; None for None."""
    missing = 0 if tensor is None else rows - tensor.shape[0]
    return F.pad(tensor, (0, 0) * (tensor.ndim - 1) + (0, missing)) if missing else tensor


def _rule(
    forward: Forward,
    shards: Any,
    lengths: Any,
    sharding: Sharding,
    *,
    accumulated: Any = (),
    parts: Any = (),
    collectors: Any = (),
) -> Any:
    """The derivative of a function, which reduces gradients of whole parameters in the order of FSDP2."""

    def backward(*gradients: Any) -> Any:
        found: list[Any] = list(gradients)
        if sharding.operation:
            reduced = _reduced(found, lengths, sharding, accumulated, parts)
            found = [reduced.get(place) for place in range(len(shards))]
        if collectors or not sharding.operation:
            return None, None, None, None, None, found  # of the last parameter
        return ([_of_shard(*pair, sharding) for pair in zip(found, shards, strict=True)],)

    return forward(shards, lengths, sharding), backward


def _reduced(gradients: list[Any], lengths: Any, sharding: Sharding, accumulated: Any, parts: Any) -> dict[int, Any]:
    """The reduced and scattered gradients by the parameter's place; parameters without one are left out."""
    rows = map(sharding.padded, lengths)
    earlier = [_padded(total, count) for total, count in zip(accumulated, rows, strict=False)]
    totals = _totals(gradients, earlier, sharding.reduce_dtype)
    wholes = [_divided(total, *sharding.divisors) for total in totals.values()]
    if sharding.size > 1:
        group = sharding.scatter_group or sharding.group
        wholes = [wait(part) for part in reduce_scatter(wholes, sharding.operation, sharding.size, group)]
    return _among_replicas(dict(zip(totals, wholes, strict=True)), parts, sharding)


def _totals(gradients: Any, accumulated: Any, dtype: Any) -> dict[int, Any]:
    """The gradients plus the accumulated ones, by the parameter's place, in the dtype of the reduction."""
    totals: dict[int, Any] = {}
    given = [gradient for gradient in gradients if gradient is not None]
    for place, (gradient, earlier) in enumerate(zip(gradients, accumulated or [None] * len(gradients), strict=True)):
        total = earlier
        if gradient is not None:
            first = earlier is None or casts_before_sums()
            total = gradient.to(dtype) if dtype is not None and first else gradient
            total = total if earlier is None else earlier + total
        elif earlier is not None and given:
            total = earlier + given[0].new_zeros((), dtype=earlier.dtype)  # what depends on no cotangent counts as zero
        if total is not None:
            totals[place] = total if dtype is None else total.to(dtype)
    return totals


def _among_replicas(totals: dict[int, Any], parts: Any, sharding: Sharding) -> dict[int, Any]:
    """The gradients plus `Gradients.parts`, by the parameter's place, reduced among replicas."""
    earlier = {place: part for place, part in enumerate(parts) if part is not None}
    sums = {place: total + earlier[place] if place in earlier else total for place, total in totals.items()}
    sums = dict(sorted({**earlier, **sums}.items()))
    if not sharding.replica_group:
        return sums
    reduced = all_reduce(list(sums.values()), sharding.operation, sharding.replica_group)
    return dict(zip(sums, [wait(part) for part in reduced], strict=True))


def _divided(total: Any, *divisors: float) -> Any:
    for divisor in divisors:
        total = total if divisor == 1 else total / divisor
    return total


def _of_shard(part: Any, shard: Any, sharding: Sharding) -> Any:
    """The gradient of a shard, from the reduced one with the rows of the longest shard; None for None."""
    if part is None:
        return None
    whole = _divided(part, sharding.last_divisor).to(shard.dtype)
    rows = shard.shape[0]
    return _on_host(whole if whole.shape[0] == rows else whole.narrow(0, 0, rows), sharding.device)


gather_rule: Final = partial(_rule, _gathered)
unsharded_rule: Final = partial(_rule, _whole)
owners_rule: Final = partial(_rule, _undefined)


def arrived_rule(gathered: Any) -> Any:
    """The derivative of `arrived` and `arrived_again`."""
    return wait(gathered), lambda gradient: gradient


class _ByRule(torch.autograd.Function):
    """A function with its rule as derivative, for programs that PyTorch's autograd differentiates at run time.

    Shards or collectors receive the gradients.
    """

    @staticmethod
    def forward(ctx: Any, rule: Callable[..., Any], shards: Tensors, *owners: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        wholes, ctx.differentiate = rule([shard.detach() for shard in shards])
        return tuple(wholes)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        *_, found = ctx.differentiate(*gradients)
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


def _differentiable(
    forward: Forward, shards: Tensors, lengths: tuple[int, ...], sharding: Sharding, gradients: Gradients
) -> Tensors:
    """The results of a function, by its rule if autograd has to differentiate them."""
    owners = gradients.get("collectors") or shards
    if torch.is_grad_enabled() and any(owner.requires_grad for owner in owners):
        return list(
            _ByRule.apply(partial(_rule, forward, lengths=lengths, sharding=sharding, **gradients), shards, *owners)
        )
    return forward(shards, lengths, sharding)
