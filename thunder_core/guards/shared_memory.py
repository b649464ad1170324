"""How tensors share memory: what the program makes of a write to one of them depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from thunder_core.guards.guard import Guard
from thunder_core.guards.source import Source
from thunder_core.pytorch_internals import CreationMeta, get_creation_meta, is_alias_of, tensor_identity, view_base

Relations = tuple[tuple[Any, ...], ...]


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """What autograd takes the tensor for a view of; itself, if for none.

    Also itself if it is a view of something whose elements are others: of a complex tensor's parts, or of sparse ones.
    """
    base: torch.Tensor | None = view_base(tensor)
    if base is None or base.layout is not torch.strided or base.dtype != tensor.dtype:
        return tensor
    return base


def relations(*tensors: torch.Tensor) -> Relations | None:
    """None for tensors without common memory, else for each where it starts in bytes and what autograd knows of it.

    That is: which of the tensors is the first that is a view of the same base, whether writes to it are recorded (not
    those to what was made a view under `torch.no_grad`, say), whether it and its base are leaves and require grad.
    """
    first, start = tensors[0], tensors[0].storage_offset() * tensors[0].element_size()
    bases: dict[int, int] = {}
    found = []
    for index, tensor in enumerate(tensors):
        if not is_alias_of(first, tensor):
            return None
        base = base_of(tensor)
        distance = tensor.storage_offset() * tensor.element_size() - start
        leaves = tensor.is_leaf, base.is_leaf, base.requires_grad
        found.append((distance, bases.setdefault(tensor_identity(base), index), is_recorded(tensor), *leaves))
    return tuple(found)


def is_recorded(tensor: torch.Tensor) -> bool:
    """Whether autograd takes writes to it as to its base; not if it was made a view under `torch.no_grad`, say."""
    return view_base(tensor) is None or bool(get_creation_meta(tensor) == CreationMeta.DEFAULT)


@dataclass(frozen=True, slots=True)
class SharedMemoryGuard(Guard):
    """Inputs in one memory, which the program writes, stand to each other as they did.

    Attributes:
        others: where the tensors after the first are found.
        relations: of the tensors.
    """

    others: tuple[Source, ...]
    relations: Relations | None
    kind: ClassVar[str] = "shared memory"

    def violation(self, args: Any, kwargs: Any) -> str | None:
        tensors = [source.read(args, kwargs) for source in (self.source, *self.others)]
        return self.reason(tensors[0]) if relations(*tensors) != self.relations else None

    def reason(self, value: Any) -> str:
        others = ", ".join(source.describe() for source in self.others)
        return (
            f"{self.source.describe()}: shares memory with {others} in another way than when the "
            "program, which writes it, was recorded"
        )
