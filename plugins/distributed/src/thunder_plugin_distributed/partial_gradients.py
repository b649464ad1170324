"""Gradients that `fully_shard` reduced among the ranks that have shards, and not yet among replicas.

After ``set_requires_all_reduce(False)`` backward of a module with a two-dimensional mesh adds each rank's part of the
reduced gradients to those before, until a backward with an all-reduce adds its own. Programs keep them where eager
PyTorch does: in one tensor for a group, with the parts of its parameters that had gradients one after the other. Which
these are is not noted by PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from thunder_core.errors import UnsupportedError
from thunder_plugin_distributed import pytorch_internals


@dataclass(slots=True)
class _Parts:
    """What is in the tensor of a group.

    Attributes:
        kept: the tensor.
        places: the parameters of the group that it has parts of, in order.
        waiting: those that no backward has reduced yet.
    """

    kept: torch.Tensor
    places: tuple[int, ...]
    waiting: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = set(self.places)


_parts: Final[WeakKeyDictionary[Any, _Parts]] = WeakKeyDictionary()
_added: Final[WeakKeyDictionary[Any, tuple[int, dict[int, torch.Tensor]]]] = WeakKeyDictionary()
"""For a group, the backward that runs and the parts that it has computed so far, by the place of the parameter."""


def keeps_parts(group: Any) -> bool:
    """Whether backward reduces the gradients of a group among shards, and not among replicas."""
    return hasattr(group.mesh_info, "replicate_process_group") and group.reduce_grads and not group.all_reduce_grads


def places_of(group: Any) -> tuple[int, ...] | None:
    """The parameters of a group of which parts are kept; None if eager PyTorch kept some of them alone."""
    kept = group._partial_reduce_output
    if kept is None:
        return ()
    known = _parts.get(group)
    if known is None or known.kept is not kept:
        trainable = [place for place, each in enumerate(group.fsdp_params) if each.sharded_param.requires_grad]
        if kept.numel() != sum(_count(group, place) for place in trainable):
            return None
        known = _parts[group] = _Parts(kept, tuple(trainable))
    return known.places


def part_of(group: Any, place: int) -> torch.Tensor:
    """The part that is kept of a parameter: the shape is that of the largest shard of all ranks."""
    places = places_of(group)
    assert places is not None  # a guard compares it
    ends = list(accumulate([_count(group, each) for each in places], initial=0))
    start, end = list(pairwise(ends))[places.index(place)]
    part: torch.Tensor = group._partial_reduce_output[start:end]
    return part.view(group.fsdp_params[place].padded_sharded_param_size)


def kept_of(group: Any, place: int) -> int | None:
    """Where the part of a parameter is in memory if no backward has reduced it; None if there is none."""
    if place not in (places_of(group) or ()) or place not in _parts[group].waiting:
        return None
    return int(group._partial_reduce_output.data_ptr())


def release(group: Any, place: int) -> None:
    """Note that the part of a parameter is reduced; the last one of a group frees the tensor."""
    if place in (places_of(group) or ()):
        known = _parts[group]
        known.waiting.discard(place)
        if not known.waiting:
            group._partial_reduce_output = None
            del _parts[group]


@torch.no_grad()
def add(group: Any, place: int, part: torch.Tensor) -> None:
    """Add the part of a parameter that the backward that runs has computed, when that ends.

    Args:
        part: in the dtype of the reduction, with the shape of the largest shard. It may share memory with others.
    """
    task = pytorch_internals.current_graph_task_id()
    if group not in _added or _added[group][0] != task:
        _added[group] = task, {}
        pytorch_internals.execution_engine.queue_callback(partial(_merge, group))
    parts = _added[group][1]
    parts[place] = parts[place] + part if place in parts else part


@torch.no_grad()
def _merge(group: Any) -> None:
    """Add the parts of a backward to those before.

    Raises:
        UnsupportedError: they are of other parameters.
    """
    parts = _added.pop(group)[1]
    places = tuple(sorted(parts))
    before = places_of(group)
    if before == ():
        group._partial_reduce_output = torch.cat([parts[place].flatten() for place in places])
        _parts[group] = _Parts(group._partial_reduce_output, places)
    elif before == places:
        for place in places:
            part_of(group, place).add_(parts[place])
    else:
        raise UnsupportedError(
            "gradients of fully_shard are accumulated without an all-reduce among replicas for other parameters than "
            "in the backward before",
            advice=("use the same parameters in all of these steps", "or call set_requires_gradient_sync(False)"),
        )


def _count(group: Any, place: int) -> int:
    """Elements of the largest shard of a parameter."""
    return prod(group.fsdp_params[place].padded_sharded_param_size)
