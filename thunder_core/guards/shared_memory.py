"""How tensors share memory: what a program that writes to one of them computes depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from thunder_core.guards.guard import Guard
from thunder_core.guards.source import Source
from thunder_core.pytorch_internals import CreationMeta, get_creation_meta, is_alias_of, tensor_identity, view_base

Relations = tuple[tuple[Any, ...], ...]
_address = torch.Tensor.data_ptr


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


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class NonOverlappingGuard(Guard):
    """A tensor that shares no memory with another input: one of them is written. `OverlapCheck` checks all pairs."""

    expected: Source
    kind: ClassVar[str] = "overlap"

    def violation(self, args: Any, kwargs: Any) -> str | None:
        one, other = self.source.read(args, kwargs), self.expected.read(args, kwargs)
        return self.reason(one) if overlaps(one, other) else None

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: shares memory with {self.expected.describe()}, which the program writes"


def overlaps(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True when both may show the same memory: their storages are equal and their extents meet."""
    if one is other:
        return True
    if not is_alias_of(one, other):
        return False
    start, end = extent(one)
    other_start, other_end = extent(other)
    return start < other_end and other_start < end


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte and the byte after the last one that the tensor shows of its storage."""
    offset = int(tensor.storage_offset())
    if tensor.numel() == 0:
        return offset, offset
    last: Any = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    item = tensor.element_size()
    return offset * item, int((offset + last + 1) * item)


class OverlapCheck:
    """Says whether no pair of some tensors overlaps.

    A decoder with a cache writes two tensors in each layer and reads all its parameters: thousands of pairs. The
    addresses of the last call that was right are right again; others are sorted, and only neighbours are compared.

    Args:
        pairs: positions of tensors that must not overlap.
        tensors: with the metadata that the tensors of all calls will have.
        varies: whether they have other sizes in other calls; each pair is then compared each time.
    """

    __slots__ = ("_known", "_lengths", "_pairs")

    def __init__(
        self, pairs: Iterable[tuple[int, int]], tensors: Sequence[torch.Tensor], *, varies: bool = False
    ) -> None:
        self._pairs = frozenset(pairs)
        self._known: list[int] = []
        remembers = not varies and all(map(_has_address, tensors))
        self._lengths: list[Any] | None = [_length(one) for one in tensors] if remembers else None

    def apart(self, *tensors: torch.Tensor) -> bool:
        """True when no pair of them shows the same memory."""
        if self._lengths is None:
            return not any(overlaps(tensors[one], tensors[other]) for one, other in self._pairs)
        starts = list(map(_address, tensors))
        if starts == self._known:
            return True
        if self._some_overlap(starts, self._lengths, tensors):
            return False
        self._known = starts
        return True

    def _some_overlap(self, starts: list[int], lengths: list[Any], tensors: tuple[torch.Tensor, ...]) -> bool:
        pairs = self._pairs
        begun: list[tuple[int, int]] = []  # position and end of those that reach further than the start of the next
        for start, index in sorted(zip(starts, range(len(starts)))):
            if not lengths[index]:
                continue
            begun = [entry for entry in begun if entry[1] > start]
            for other, _ in begun:
                expected = (index, other) in pairs or (other, index) in pairs
                if expected and overlaps(tensors[index], tensors[other]):  # devices may use the same addresses
                    return True
            begun.append((index, start + lengths[index]))
        return False


def _has_address(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and tensor.layout is torch.strided and tensor.device.type != "meta"


def _length(tensor: torch.Tensor) -> Any:
    """Bytes from its first element to its last."""
    first, end = extent(tensor)
    return end - first
