"""The tensors of a sharded parameter that a program reads: the shard of this rank, and collectors of gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from thunder_core.checks.source import Names, StepSource
from thunder_core.errors import UnsupportedError
from thunder_plugin_distributed import partial_gradients, pytorch_internals
from thunder_plugin_distributed.accumulated_gradients import (
    accumulate,
    accumulated,
    is_accumulating,
    local_part,
    reduction_dtype,
    release,
)
from thunder_plugin_distributed.fully_shard_plan import groups_of


class _Earlier:
    """The accumulated gradient of a parameter when a forward runs, which the backward of this forward reduces."""

    def __init__(self, state: Any, group: Any, place: int) -> None:
        self.state, self.group, self.place = state, group, place
        self.parts = partial_gradients.keeps_parts(group)
        # until backward, so that no other gradient gets their memory
        self.gradients = accumulated(group.fsdp_params[place]), group._partial_reduce_output
        self.addresses = self._addresses()

    def release(self, gradient: Any) -> None:
        """Delete it after a backward has reduced it together with a gradient; do nothing if this gradient is None.

        Raises:
            UnsupportedError: other gradients were accumulated or reduced since then.
        """
        _check(self.group, accumulates=False, parts=self.parts)
        self.gradients = None, None
        whole, part = self._addresses()
        if whole != self.addresses[0] or (gradient is not None and part != self.addresses[1]):
            raise UnsupportedError(
                "gradients of fully_shard were accumulated without communication, or reduced, between this forward and "
                "its backward",
                advice=("call backward() before the next forward",),
            )
        reduce_others_later(self.state)
        if gradient is not None:
            release(self.group.fsdp_params[self.place])
            if not self.parts:
                partial_gradients.release(self.group, self.place)

    def _addresses(self) -> tuple[int | None, int | None]:
        part = None if self.parts else partial_gradients.address_of(self.group, self.place)
        return _address(accumulated(self.group.fsdp_params[self.place])), part


class _Shard(torch.autograd.Function):
    """As `DTensor.to_local`, but in all versions of PyTorch a parameter without a gradient remains without one.

    The program reduces the gradient together with the one that was accumulated when its forward ran.
    """

    @staticmethod
    def forward(ctx: Any, parameter: Any, state: Any, group: Any, place: int) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.spec, ctx.earlier = parameter._spec, _Earlier(state, group, place)
        shard: torch.Tensor = parameter._local_tensor
        return shard.view_as(shard)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.earlier.release(gradient)
        found = None if gradient is None else pytorch_internals.from_local_no_grad(gradient.detach(), ctx.spec)
        return found, None, None, None


class _Collector(torch.autograd.Function):
    """A tensor whose gradient is accumulated as that of the whole parameter."""

    @staticmethod
    def forward(ctx: Any, parameter: Any, group: Any, place: int) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.group, ctx.sharded, ctx.size = group, group.fsdp_params[place], _size(group)
        rows, *others = ctx.sharded.padded_sharded_param_size
        dtype = ctx.sharded.param_dtype or ctx.sharded.orig_dtype
        return torch.empty((), dtype=dtype, device=group.device).expand(rows * ctx.size, *others).data

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        _check(ctx.group, accumulates=True)
        if gradient is not None:
            gathered = whole_of_gathered(gradient, ctx.size, ctx.sharded.fsdp_placement.dim)
            accumulate(ctx.sharded, gathered.narrow(0, 0, ctx.sharded._orig_size[0]))
        return None, None, None


class _PartCollector(torch.autograd.Function):
    """A tensor whose gradient is the part of a rank, to be reduced among replicas by a later backward."""

    @staticmethod
    def forward(ctx: Any, parameter: Any, state: Any, group: Any, place: int) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.earlier, sharded = _Earlier(state, group, place), group.fsdp_params[place]
        dtype = reduction_dtype(sharded) or sharded.param_dtype or sharded.orig_dtype
        return torch.empty((), dtype=dtype, device=group.device).expand(sharded.padded_sharded_param_size).data

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        earlier = ctx.earlier
        earlier.release(gradient)
        if gradient is not None:
            partial_gradients.add(earlier.group, earlier.place, gradient)
        return None, None, None, None


def whole_of_gathered(gathered: torch.Tensor, size: int, dimension: int) -> torch.Tensor:
    """The whole tensor, sharded along ``dimension`` on ``size`` ranks, from shards concatenated along the first one."""
    return torch.cat(gathered.chunk(size), dimension) if dimension and size > 1 else gathered


def gathered_of_whole(whole: torch.Tensor, size: int, dimension: int) -> torch.Tensor:
    """The inverse of `whole_of_gathered`."""
    return torch.cat(whole.chunk(size, dimension)) if dimension and size > 1 else whole


def _size(group: Any) -> int:
    """The number of ranks that have shards."""
    return int(group.mesh_info.shard_mesh_size) if hasattr(group.mesh_info, "shard_process_group") else 1


def _address(gradient: torch.Tensor | None) -> int | None:
    """The address of an accumulated gradient, which does not change while gradients are added to it."""
    return None if gradient is None else local_part(gradient).data_ptr()


def _check(group: Any, *, accumulates: bool, parts: bool = False) -> None:
    """Check that backward reduces gradients if and only if eager PyTorch would.

    Raises:
        UnsupportedError: this setting was changed after forward.
    """
    reductions = {
        "set_requires_gradient_sync": is_accumulating(group) is accumulates,
        "set_requires_all_reduce": partial_gradients.keeps_parts(group) is parts,
    }
    for name, is_unchanged in reductions.items():
        if not is_unchanged:
            raise UnsupportedError(
                f"{name} was called between forward and backward of a module of fully_shard",
                advice=("call it before forward", "call backward() before it is called again"),
            )


def _waits(state: Any) -> bool:
    """Whether a state has an accumulated gradient that the next backward reduces."""
    for group in groups_of(state):
        if not is_accumulating(group) and any(accumulated(sharded) is not None for sharded in group.fsdp_params):
            return True
        if group._partial_reduce_output is not None and group.reduce_grads and group.all_reduce_grads:
            return True
    return False


_queued: Final[WeakKeyDictionary[Any, int]] = WeakKeyDictionary()
"""By the state that the modules of one root share, the id of the backward at whose end `_reduce_others` runs."""


def reduce_others_later(state: Any) -> None:
    """Reduce, at the end of the running backward, accumulated gradients of parameters for which it computes none.

    These are parameters of modules that forward did not call, or on which its results do not depend.
    """
    task, shared = pytorch_internals.current_graph_task_id(), state._state_ctx
    if _queued.get(shared) != task:
        _queued[shared] = task
        pytorch_internals.execution_engine.queue_callback(partial(_reduce_others, state))


def _reduce_others(state: Any) -> None:
    if any(map(_waits, state._state_ctx.all_states)):
        state._register_root_post_backward_final_callback()


def shard_of(state: Any, group: int, place: int) -> torch.Tensor:
    """The local tensor of a DTensor. The gradient of the DTensor is a DTensor, as in eager.

    If gradients are accumulated, `collector_of` receives the gradient, and the shard does not require grad.
    """
    owner = groups_of(state)[group]
    parameter = owner.fsdp_params[place].sharded_param
    if is_accumulating(owner) or partial_gradients.keeps_parts(owner):
        local: torch.Tensor = parameter._local_tensor
        return local.detach()
    with torch.enable_grad():
        shard: torch.Tensor = _Shard.apply(parameter, state, owner, place)
    return shard


def collector_of(state: Any, group: int, place: int) -> torch.Tensor:
    """A tensor whose gradient is accumulated by backward. It is an expanded, uninitialized tensor of one element.

    It has the shape, dtype and device of the gathered tensor, or those of the longest shard if gradients are reduced
    and scattered without an all-reduce among replicas.
    """
    owner = groups_of(state)[group]
    parameter = owner.fsdp_params[place].sharded_param
    collector: torch.Tensor
    with torch.enable_grad():
        if is_accumulating(owner):
            collector = _Collector.apply(parameter, owner, place)
        else:
            collector = _PartCollector.apply(parameter, state, owner, place)
    return collector


def accumulated_of(state: Any, group: int, place: int) -> torch.Tensor:
    """The accumulated gradient of the whole parameter, or of this rank's part of it.

    Its layout is that of the gathered tensor: the parts of all ranks concatenated along the first dimension.
    """
    owner = groups_of(state)[group]
    sharded = owner.fsdp_params[place]
    gradient = accumulated(sharded)
    assert gradient is not None  # a guard compares it
    return gathered_of_whole(local_part(gradient).detach(), _size(owner), sharded.fsdp_placement.dim)


def part_of(state: Any, group: int, place: int) -> torch.Tensor:
    """The gradient that was reduced and scattered, but not yet among replicas; it has the rows of the longest shard."""
    return partial_gradients.part_of(groups_of(state)[group], place).detach()


@dataclass(frozen=True, slots=True)
class ShardSource(StepSource):
    """A tensor of a parameter of the state ``base``.

    Attributes:
        read_of: `shard_of`, `collector_of`, `accumulated_of` or `part_of`.
        group, place: the group of the parameter in the state, and its place in the group.
        name: its name in messages: ``module.layer.weight.shard``.
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
