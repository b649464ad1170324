"""Collectives as operators: one op starts to communicate several tensors, `wait` returns each result once complete.

They call PyTorch's functional collectives. As operators with side effects they keep their order and are not removed,
and passes recognize them by the tags of their rows (`thunder_plugin_distributed.symbols`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_plugin_distributed.pytorch_internals import c10d_functional as functional

_LIBRARY: Final = torch.library.Library("thunder_distributed", "DEF")

Tensors = list[torch.Tensor]


def _all_gather(shards: Tensors, size: int, group: str) -> Tensors:
    gathered: Tensors = functional.all_gather_into_tensor_coalesced(
        [shard.contiguous() for shard in shards], size, group
    )
    return gathered


def _reduce_scatter(wholes: Tensors, operation: str, size: int, group: str) -> Tensors:
    dense = [whole.contiguous() for whole in wholes]
    parts: Tensors = functional.reduce_scatter_tensor_coalesced(dense, operation, size, group)
    return parts


def _all_reduce(values: Tensors, operation: str, group: str) -> Tensors:
    reduced: Tensors = functional.all_reduce_coalesced([value.contiguous() for value in values], operation, group)
    return reduced


def _wait(value: torch.Tensor) -> torch.Tensor:
    awaited: torch.Tensor = functional.wait_tensor(value)
    return awaited


def _all_gather_meta(shards: Tensors, size: int, group: str) -> Tensors:
    return [shard.new_empty((shard.shape[0] * size, *shard.shape[1:])) for shard in shards]


def _reduce_scatter_meta(wholes: Tensors, operation: str, size: int, group: str) -> Tensors:
    return [whole.new_empty((whole.shape[0] // size, *whole.shape[1:])) for whole in wholes]


def _all_reduce_meta(values: Tensors, operation: str, group: str) -> Tensors:
    return [value.new_empty(value.shape) for value in values]


def _wait_meta(value: torch.Tensor) -> torch.Tensor:
    # Passes see a new tensor, though it shares the memory of ``value``. Nothing else reads ``value``, and ops that
    # read the result must not move before the wait.
    return value.new_empty(value.shape)


_OPERATORS: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {
    "all_gather(Tensor[] shards, int size, str group) -> Tensor[]": (_all_gather, _all_gather_meta),
    "reduce_scatter(Tensor[] wholes, str operation, int size, str group) -> Tensor[]": (
        _reduce_scatter,
        _reduce_scatter_meta,
    ),
    "all_reduce(Tensor[] values, str operation, str group) -> Tensor[]": (_all_reduce, _all_reduce_meta),
    "wait(Tensor value) -> Tensor": (_wait, _wait_meta),
}


def _define() -> None:
    for schema, (implementation, meta) in _OPERATORS.items():
        name = schema.partition("(")[0]
        _LIBRARY.define(schema)
        for key in ("CPU", "CUDA"):
            _LIBRARY.impl(name, implementation, key)
        _LIBRARY.impl(name, meta, "Meta")


_define()

all_gather: Final = torch.ops.thunder_distributed.all_gather.default
"""``(shards, size, group)``: for each shard, the shards of all ranks, concatenated along the first dimension."""

reduce_scatter: Final = torch.ops.thunder_distributed.reduce_scatter.default
"""``(wholes, operation, size, group)``: this rank's part, along the first dimension, of the reduced tensors."""

all_reduce: Final = torch.ops.thunder_distributed.all_reduce.default
"""``(values, operation, group)``: the tensors reduced over all ranks."""

wait: Final = torch.ops.thunder_distributed.wait.default
"""``(value)``: a result of a collective, once it is complete; no other op may read ``value``."""
