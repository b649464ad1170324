"""Tensors that a program reads of a sharded parameter: this rank's part, and what collects its whole gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.guards.source import Names, StepSource
from thunder_plugin_distributed import pytorch_internals
from thunder_plugin_distributed.accumulated_gradients import (
    accumulate,
    accumulated,
    is_accumulating,
    local_part,
    release,
)
from thunder_plugin_distributed.fully_shard_plan import groups_of


class _Shard(torch.autograd.Function):
    """As `DTensor.to_local`, and a parameter without a gradient stays without one in all versions of PyTorch.

    The program reduces the gradient together with what was accumulated when its forward ran.
    """

    @staticmethod
    def forward(ctx: Any, parameter: Any, state: Any, group: Any, sharded: Any) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.spec, ctx.state, ctx.group, ctx.sharded = parameter._spec, state, group, sharded
        ctx.accumulated = accumulated(sharded)  # until backward, so that no other gradient gets its memory
        ctx.address = _address(ctx.accumulated)
        shard: torch.Tensor = parameter._local_tensor
        return shard.view_as(shard)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        _check(ctx.group, accumulates=False)
        ctx.accumulated = None
        if _address(accumulated(ctx.sharded)) != ctx.address:
            raise UnsupportedError(
                "gradients of fully_shard were accumulated without communication, or reduced, between this forward and "
                "its backward",
                advice=("call backward() before the next forward",),
            )
        reduce_others_later(ctx.state)
        if gradient is None:
            return None, None, None, None
        release(ctx.sharded)
        return pytorch_internals.from_local_no_grad(gradient.detach(), ctx.spec), None, None, None


class _Collector(torch.autograd.Function):
    """A tensor whose gradient is accumulated as that of the whole parameter."""

    @staticmethod
    def forward(ctx: Any, parameter: Any, group: Any, sharded: Any) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.group, ctx.sharded, ctx.size = group, sharded, _size(group)
        if ctx.size == 1:
            local: torch.Tensor = parameter._local_tensor
            return local.view_as(local)
        rows, *others = sharded.padded_sharded_param_size
        element = torch.empty((), dtype=sharded.param_dtype or sharded.orig_dtype, device=group.device)
        return element.expand(rows * ctx.size, *others).data

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        _check(ctx.group, accumulates=True)
        if gradient is not None:
            gathered = whole_of_gathered(gradient, ctx.size, ctx.sharded.fsdp_placement.dim)
            whole = gathered.narrow(0, 0, ctx.sharded._orig_size[0])
            accumulate(ctx.sharded, whole.to(ctx.group.device))  # from the host, for shards in its memory
        return None, None, None


def whole_of_gathered(gathered: torch.Tensor, size: int, dimension: int) -> torch.Tensor:
    """What ``size`` ranks have parts of along ``dimension``, from these parts along the first dimension."""
    return torch.cat(gathered.chunk(size), dimension) if dimension and size > 1 else gathered


def gathered_of_whole(whole: torch.Tensor, size: int, dimension: int) -> torch.Tensor:
    """The inverse of `whole_of_gathered`."""
    return torch.cat(whole.chunk(size, dimension)) if dimension and size > 1 else whole


def _size(group: Any) -> int:
    """The number of ranks that have shards."""
    return int(group.mesh_info.shard_mesh_size) if hasattr(group.mesh_info, "shard_process_group") else 1


def _address(gradient: torch.Tensor | None) -> int | None:
    """Where an accumulated gradient is in memory, which stays the same while gradients are added to it."""
    return None if gradient is None else local_part(gradient).data_ptr()


def _check(group: Any, *, accumulates: bool) -> None:
    """Check that backward does with gradients what eager PyTorch would do.

    Raises:
        UnsupportedError: whether they are reduced was changed since forward.
    """
    if is_accumulating(group) is not accumulates:
        raise UnsupportedError(
            "set_requires_gradient_sync was called between forward and backward of a module of fully_shard",
            advice=("call it before forward", "call backward() before it is called again"),
        )


def _waits(state: Any) -> bool:
    """Whether a gradient of a state was accumulated that the next backward reduces."""
    return any(
        accumulated(sharded) is not None
        for group in groups_of(state)
        if not is_accumulating(group)
        for sharded in group.fsdp_params
    )


_queued: Final[WeakKeyDictionary[Any, int]] = WeakKeyDictionary()
"""For the state that modules of one root share, the backward at whose end `_reduce_others` is called."""


def reduce_others_later(state: Any) -> None:
    """Have the backward that runs reduce, at its end, what is accumulated for parameters that it gave no gradient.

    These are of modules that forward did not call, or that its results do not depend on.
    """
    task, shared = pytorch_internals.current_graph_task_id(), state._state_ctx
    if _queued.get(shared) != task:
        _queued[shared] = task
        pytorch_internals.execution_engine.queue_callback(partial(_reduce_others, state))


def _reduce_others(state: Any) -> None:
    if any(map(_waits, state._state_ctx.all_states)):
        state._register_root_post_backward_final_callback()


def shard_of(state: Any, group: int, place: int) -> torch.Tensor:
    """The local tensor of a DTensor; the gradient of the DTensor is one, as in eager.

    Where gradients are accumulated without communication the DTensor gets none. What is accumulated is the gradient of
    the shard if that is the whole parameter, otherwise that of `collector_of`, and the shard requires none.
    """
    owner = groups_of(state)[group]
    sharded = owner.fsdp_params[place]
    if is_accumulating(owner) and _size(owner) > 1:
        local: torch.Tensor = sharded.sharded_param._local_tensor
        return local.detach()
    if is_accumulating(owner):
        return collector_of(state, group, place)
    with torch.enable_grad():
        shard: torch.Tensor = _Shard.apply(sharded.sharded_param, state, owner, sharded)
    return shard


def collector_of(state: Any, group: int, place: int) -> torch.Tensor:
    """A tensor with shape, dtype and device of what is gathered: backward accumulates its gradient.

    Its elements are undefined, and share the memory of one, unless one rank has the whole parameter.
    """
    owner = groups_of(state)[group]
    sharded = owner.fsdp_params[place]
    with torch.enable_grad():
        collector: torch.Tensor = _Collector.apply(sharded.sharded_param, owner, sharded)
    return collector


def accumulated_of(state: Any, group: int, place: int) -> torch.Tensor:
    """The gradient of the whole parameter, or of this rank's part of it, that was accumulated before.

    It is laid out as what is gathered: the parts of all ranks along the first dimension.
    """
    owner = groups_of(state)[group]
    sharded = owner.fsdp_params[place]
    gradient = accumulated(sharded)
    assert gradient is not None  # a guard compares it
    return gathered_of_whole(local_part(gradient).detach(), _size(owner), sharded.fsdp_placement.dim)


@dataclass(frozen=True, slots=True)
class ShardSource(StepSource):
    """A tensor of a parameter of the state ``base``.

    Attributes:
        read_of: `shard_of`, `collector_of` or `accumulated_of`.
        group, place: of the parameter: its group in the state, its place in the group.
        name: what the user calls it: ``module.layer.weight.shard``.
    """

    read_of: Callable[[Any, int, int], torch.Tensor]
    group: int
    place: int
    name: str = field(default="", compare=False)

    def describe(self) -> str:
        return self.name

    def step(self, base: str, names: Names) -> str:
        function = names.constant(self.read_of, self.read_of.__name__)
        return f"{function}({base}, {self.group}, {self.place})"
