"""Partial gradients of `fully_shard`: reduced among the ranks that have shards, but not yet among replicas.

After ``set_requires_all_reduce(False)``, each backward of a module with a two-dimensional mesh adds this rank's part of
the reduced gradients to a tensor, and the next backward with an all-reduce reduces the sum. Programs store this tensor
where eager PyTorch does: one for each group, with the parts of the parameters that had gradients concatenated. PyTorch
before 2.15 does not record which parameters these are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from thunder_plugin_distributed import pytorch_internals


@dataclass(slots=True)
class _Kept:
    """The partial gradients of a group.

    Attributes:
        parts: the tensor.
        offsets: the offset in it of each parameter's part, by the parameter's place in the group.
        waiting: the places of the parameters whose parts no backward has reduced yet.
    """

    parts: torch.Tensor
    offsets: dict[int, int]
    waiting: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = set(self.offsets)


_kept: Final[WeakKeyDictionary[Any, _Kept]] = WeakKeyDictionary()
_added: Final[WeakKeyDictionary[Any, tuple[int, dict[int, torch.Tensor]]]] = WeakKeyDictionary()
"""By group, the id of the running backward and the parts that it has computed so far, by the parameter's place."""


def keeps_parts(group: Any) -> bool:
    """Whether backward reduces the gradients of a group among shards, but not among replicas."""
    return hasattr(group.mesh_info, "replicate_process_group") and group.reduce_grads and not group.all_reduce_grads


def is_known(group: Any) -> bool:
    """Whether the parameters with partial gradients are known; after a backward of eager PyTorch they may not be."""
    return group._partial_reduce_output is None or _kept_of(group) is not None


def has_part(group: Any, place: int) -> bool:
    """Whether a parameter of a group has a partial gradient."""
    kept = _kept_of(group)
    return kept is not None and place in kept.offsets


def part_of(group: Any, place: int) -> torch.Tensor:
    """The partial gradient of a parameter, with the shape of the largest shard of all ranks."""
    kept = _kept_of(group)
    assert kept is not None  # a guard compares it
    part = kept.parts.narrow(0, kept.offsets[place], _count(group, place))
    return part.view(group.fsdp_params[place].padded_sharded_param_size)


def address_of(group: Any, place: int) -> int | None:
    """The address of the partial gradient of a parameter; None if there is none, or a backward has reduced it."""
    kept = _kept_of(group)
    return kept.parts.data_ptr() if kept is not None and place in kept.waiting else None


def release(group: Any, place: int) -> None:
    """Mark the part of a parameter as reduced; after the last one of a group the tensor is freed."""
    kept = _kept_of(group)
    if kept is not None:
        kept.waiting.discard(place)
        if not kept.waiting:
            group._partial_reduce_output = None
            del _kept[group]


def add(group: Any, place: int, part: torch.Tensor) -> None:
    """Add the part of a parameter that the running backward has computed; the addition takes place when it ends.

    Args:
        part: in the dtype of the reduction, with the shape of the largest shard. It may share memory with others.
    """
    task = pytorch_internals.current_graph_task_id()
    if group not in _added or _added[group][0] != task:
        _added[group] = task, {}
        pytorch_internals.execution_engine.queue_callback(partial(_add_all, group))
    parts = _added[group][1]
    parts[place] = parts[place] + part if place in parts else part


@torch.no_grad()
def _add_all(group: Any) -> None:
    """Add the parts of one backward to the partial gradients, which may be those of other parameters."""
    parts, kept = _added.pop(group)[1], _kept_of(group)
    before = set() if kept is None else set(kept.offsets)
    for place in before & parts.keys():
        part_of(group, place).add_(parts[place])
    if parts.keys() - before:
        places = sorted(before | parts.keys())
        totals = [part_of(group, place) if place in before else parts[place] for place in places]
        group._partial_reduce_output = torch.cat([total.flatten() for total in totals])
        kept = _kept[group] = _Kept(group._partial_reduce_output, _offsets(group, places))
        if hasattr(group, "_partial_reduce_output_layout"):
            group._partial_reduce_output_layout = {
                group.fsdp_params[place]: (offset, _count(group, place)) for place, offset in kept.offsets.items()
            }


def _kept_of(group: Any) -> _Kept | None:
    """The partial gradients of a group; None if there are none, or their parameters are unknown."""
    parts, known = group._partial_reduce_output, _kept.get(group)
    if parts is None:
        return None
    if known is not None and known.parts is parts:
        return known
    trainable = [place for place, each in enumerate(group.fsdp_params) if each.sharded_param.requires_grad]
    if hasattr(group, "_partial_reduce_output_layout"):
        layout = group._partial_reduce_output_layout
        offsets = {place: layout[each][0] for place, each in enumerate(group.fsdp_params) if each in layout}
    elif parts.numel() == sum(_count(group, place) for place in trainable):
        offsets = _offsets(group, trainable)
    else:
        return None
    _kept[group] = _Kept(parts, offsets)
    return _kept[group]


def _offsets(group: Any, places: Iterable[int]) -> dict[int, int]:
    """The offsets of the parts of parameters in one tensor."""
    offsets, end = {}, 0
    for place in places:
        offsets[place] = end
        end += _count(group, place)
    return offsets


def _count(group: Any, place: int) -> int:
    """The number of elements of the largest shard of a parameter."""
    return prod(group.fsdp_params[place].padded_sharded_param_size)
