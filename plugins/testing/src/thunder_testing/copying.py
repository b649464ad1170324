"""Deep copies of arbitrary values that preserve aliasing among them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch

from thunder_core.pytorch_internals import neg_view


def copy_together(*values: Any) -> tuple[Any, ...]:
    """Copies of ``values`` that share objects and storages as the originals do."""
    memo: dict[int, Any] = {}
    for leaf in _special_leaves(values, set()):
        memo[id(leaf)] = _copy_special(leaf, memo)
    return tuple(copy.deepcopy(value, memo) for value in values)


def _copy_special(leaf: torch.Generator | torch.Tensor, memo: dict[int, Any]) -> Any:
    if isinstance(leaf, torch.Generator):
        return leaf.clone_state()
    tensor = leaf.detach()
    if tensor.layout is not torch.strided:
        copied = tensor.clone()
    elif tensor.is_conj():
        copied = copy.deepcopy(tensor.conj(), memo).conj()
    else:
        copied = neg_view(copy.deepcopy(neg_view(tensor), memo))
    return copied.requires_grad_(leaf.requires_grad)


def _special_leaves(value: Any, seen: set[int]) -> Iterator[torch.Generator | torch.Tensor]:
    """The values in the containers of ``value`` that ``copy.deepcopy`` rejects or changes.

    These are generators, sparse tensors, and lazily conjugated or negated tensors.
    """
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_conj() or value.is_neg():
            yield value
    elif isinstance(value, torch.Generator):
        yield value
    if id(value) in seen or not isinstance(value, tuple | list | dict):
        return
    seen.add(id(value))
    for item in value.values() if isinstance(value, dict) else value:
        yield from _special_leaves(item, seen)
