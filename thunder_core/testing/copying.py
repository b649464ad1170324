"""Deep copies that keep aliasing among values, of everything that tests pass around."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch


def copy_together(*values: Any) -> tuple[Any, ...]:
    """Copies of ``values`` that share objects and storages among each other as the originals do."""
    memo: dict[int, Any] = {}
    for leaf in _special_leaves(values, set()):
        memo[id(leaf)] = leaf.clone_state() if isinstance(leaf, torch.Generator) else leaf.detach().clone()
    return tuple(copy.deepcopy(value, memo) for value in values)


def _special_leaves(value: Any, seen: set[int]) -> Iterator[torch.Generator | torch.Tensor]:
    """The values in the containers of ``value`` that ``copy.deepcopy`` refuses: generators and sparse tensors."""
    if isinstance(value, torch.Generator) or (isinstance(value, torch.Tensor) and value.layout is not torch.strided):
        yield value
    if id(value) in seen or not isinstance(value, tuple | list | dict):
        return
    seen.add(id(value))
    for item in value.values() if isinstance(value, dict) else value:
        yield from _special_leaves(item, seen)
