"""How two tensors share memory: what the program makes of a write to one of them depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from thunder_core.guards.guard import Guard
from thunder_core.guards.source import Source

Relation = tuple[Any, ...]


def base_of(tensor: torch.Tensor) -> int:
    """Identity of what autograd takes the tensor for a view of: itself, if for none."""
    base = tensor if tensor._base is None else tensor._base
    return base._cdata


def is_recorded(tensor: torch.Tensor) -> bool:
    """Whether autograd takes writes to a view; not for those that were made under `torch.no_grad`, say."""
    autograd = torch._C._autograd
    return tensor._base is None or autograd._get_creation_meta(tensor) == autograd.CreationMeta.DEFAULT


def relation(one: torch.Tensor, other: torch.Tensor) -> Relation | None:
    """None for tensors without common memory, else how far apart they start in bytes and what autograd knows."""
    if not torch._C._is_alias_of(one, other):  # type: ignore[attr-defined]
        return None
    distance = other.storage_offset() * other.element_size() - one.storage_offset() * one.element_size()
    related = base_of(one) == base_of(other)
    return distance, related, is_recorded(one), is_recorded(other), one.is_leaf, other.is_leaf


@dataclass(frozen=True, slots=True)
class SharedMemoryGuard(Guard):
    """Two inputs in one memory, which the program writes, stand to each other as they did.

    Attributes:
        expected: where the second tensor is found.
        relation: of the first to the second.
    """

    expected: Source
    relation: Relation | None
    kind: ClassVar[str] = "shared memory"

    def violation(self, args: Any, kwargs: Any) -> str | None:
        one, other = self.source.read(args, kwargs), self.expected.read(args, kwargs)
        return self.reason(one) if relation(one, other) != self.relation else None

    def reason(self, value: Any) -> str:
        return (
            f"{self.source.describe()}: shares memory with {self.expected.describe()} in another way than when the "
            "program, which writes it, was recorded"
        )
