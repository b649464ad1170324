"""Collectives as operators: one starts the communication, `wait` waits for what it gives.

They are PyTorch's functional collectives under names of Thunder's own. So they keep their order and none is removed, as
any operator that may do more than to compute, and passes know them by the tags of their rows
(`thunder_plugin_distributed.symbols`).
"""

from __future__ import annotations

from typing import Any, Final

import torch

_LIBRARY: Final = torch.library.Library("thunder_distributed", "DEF")
_C10D: Final = torch.ops._c10d_functional


def _all_gather(shard: torch.Tensor, size: int, group: str) -> torch.Tensor:
    gathered: torch.Tensor = _C10D.all_gather_into_tensor(shard.contiguous(), size, group)
    return gathered


def _reduce_scatter(whole: torch.Tensor, operation: str, size: int, group: str) -> torch.Tensor:
    part: torch.Tensor = _C10D.reduce_scatter_tensor(whole.contiguous(), operation, size, group)
    return part


def _all_reduce(value: torch.Tensor, operation: str, group: str) -> torch.Tensor:
    reduced: torch.Tensor = _C10D.all_reduce(value.contiguous(), operation, group)
    return reduced


def _wait(value: torch.Tensor) -> torch.Tensor:
    awaited: torch.Tensor = _C10D.wait_tensor(value)
    return awaited


def _all_gather_fake(shard: torch.Tensor, size: int, group: str) -> torch.Tensor:
    return shard.new_empty((shard.shape[0] * size, *shard.shape[1:]))


def _reduce_scatter_fake(whole: torch.Tensor, operation: str, size: int, group: str) -> torch.Tensor:
    return whole.new_empty((whole.shape[0] // size, *whole.shape[1:]))


def _all_reduce_fake(value: torch.Tensor, operation: str, group: str) -> torch.Tensor:
    return value.new_empty(value.shape)


def _wait_fake(value: torch.Tensor) -> torch.Tensor:
    # A tensor of its own to passes, though it lies in the memory of ``value``: nothing else reads that, and what reads
    # the result must not come before the wait.
    return value.new_empty(value.shape)


_OPERATORS: Final[dict[str, tuple[Any, Any]]] = {
    "all_gather(Tensor shard, int size, str group) -> Tensor": (_all_gather, _all_gather_fake),
    "reduce_scatter(Tensor whole, str operation, int size, str group) -> Tensor": (
        _reduce_scatter,
        _reduce_scatter_fake,
    ),
    "all_reduce(Tensor value, str operation, str group) -> Tensor": (_all_reduce, _all_reduce_fake),
    "wait(Tensor value) -> Tensor": (_wait, _wait_fake),
}


def _define() -> None:
    for schema, (implementation, fake) in _OPERATORS.items():
        name = schema.partition("(")[0]
        _LIBRARY.define(schema)
        for key in ("CPU", "CUDA"):
            _LIBRARY.impl(name, implementation, key)
        _LIBRARY.impl(name, fake, "Meta")


_define()

all_gather: Final = torch.ops.thunder_distributed.all_gather.default
"""``(shard, size, group)``: the shards of all ranks, one after the other along the first dimension."""

reduce_scatter: Final = torch.ops.thunder_distributed.reduce_scatter.default
"""``(whole, operation, size, group)``: this rank's part, along the first dimension, of what all ranks' tensors give."""

all_reduce: Final = torch.ops.thunder_distributed.all_reduce.default
"""``(value, operation, group)``: what all ranks' tensors give."""

wait: Final = torch.ops.thunder_distributed.wait.default
"""``(value)``: what a collective gives, once it is there; nothing else may read ``value``."""
