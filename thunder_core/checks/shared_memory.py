"""Guards on memory that inputs share, for programs that write to inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from thunder_core.checks.guard import Guard
from thunder_core.checks.source import Source
from thunder_core.pytorch_internals import CreationMeta, get_creation_meta, is_alias_of, tensor_identity, view_base

Relations = tuple[tuple[Any, ...], ...]
_address = torch.Tensor.data_ptr


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """The base of a view in autograd; the tensor itself if it is not a view, or a view with another dtype or layout."""
    base: torch.Tensor | None = view_base(tensor)
    if base is None or base.layout is not torch.strided or base.dtype != tensor.dtype:
        return tensor
    return base


def relations(*tensors: torch.Tensor) -> Relations | None:
    """For each tensor its offset in bytes and its state in autograd; None if the tensors do not share memory.

    The state is the index of the first tensor that is a view of the same base, whether autograd records writes to it,
    whether it and its base are leaves, and whether the base requires grad.
    """
    first, start = tensors[0], tensors[0].storage_offset() * tensors[0].element_size()
    bases: dict[int, int] = {}
    rows = []
    for index, tensor in enumerate(tensors):
        if not is_alias_of(first, tensor):
            return None
        base = base_of(tensor)
        distance = tensor.storage_offset() * tensor.element_size() - start
        leaves = tensor.is_leaf, base.is_leaf, base.requires_grad
        rows.append((distance, bases.setdefault(tensor_identity(base), index), is_recorded(tensor), *leaves))
    return tuple(rows)


def is_recorded(tensor: torch.Tensor) -> bool:
    """Whether autograd records writes to a tensor as writes to its base; not of views from `torch.no_grad`."""
    return view_base(tensor) is None or bool(get_creation_meta(tensor) == CreationMeta.DEFAULT)


@dataclass(frozen=True, slots=True, eq=False)
class SharedMemoryGuard(Guard):
    """Inputs that share memory, which the program writes, with the same `relations` as during recording.

    Attributes:
        others: the paths of the tensors after the first.
        relations: the relations during recording.
    """

    others: tuple[Source, ...]
    relations: Relations | None
    kind: ClassVar[str] = "shared memory"

    def summary(self) -> str:
        return "with " + ", ".join(source.describe() for source in self.others)

    def violation(self, args: Any, kwargs: Any) -> str | None:
        tensors = [source.read(args, kwargs) for source in (self.source, *self.others)]
        return self.reason(tensors[0]) if relations(*tensors) != self.relations else None

    def reason(self, value: Any) -> str:
        others = ", ".join(source.describe() for source in self.others)
        return (
            f"{self.source.describe()}: shares memory with {others} in a different way than when the "
            "program, which writes it, was recorded"
        )


@dataclass(frozen=True, slots=True, eq=False)
class NonOverlappingGuard(Guard):
    """A tensor that shares no memory with another input, if the program writes to one of them.

    The prologue checks all pairs by `OverlapCheck`.
    """

    expected: Source
    kind: ClassVar[str] = "no overlap"

    def summary(self) -> str:
        return f"with {self.expected.describe()}"

    def violation(self, args: Any, kwargs: Any) -> str | None:
        one, other = self.source.read(args, kwargs), self.expected.read(args, kwargs)
        return self.reason(one) if overlaps(one, other) else None

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: shares memory with {self.expected.describe()}, which the program writes"


def overlaps(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors may share elements: their storages are equal and their extents intersect."""
    if one is other:
        return True
    if not is_alias_of(one, other):
        return False
    start, end = extent(one)
    other_start, other_end = extent(other)
    return start < other_end and other_start < end


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The offsets in the storage, in bytes, of the first element and of the end of the last."""
    offset = int(tensor.storage_offset())
    if tensor.numel() == 0:
        return offset, offset
    last: Any = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    item = tensor.element_size()
    return offset * item, int((offset + last + 1) * item)


class OverlapCheck:
    """Checks that pairs of tensors do not overlap.

    A decoder with a cache writes two tensors in each layer and reads all its parameters: thousands of pairs. Addresses
    that are equal to those of the last valid call are valid; others are sorted, and only neighbours are compared.

    Args:
        pairs: positions of tensors that must not overlap.
        tensors: tensors with the metadata of those in all calls.
        varies: whether sizes vary between calls; if so, each call compares each pair.
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
        """Whether no pair of the tensors overlaps."""
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
        begun: list[tuple[int, int]] = []  # position and end of the tensors that end after the start of the next
        for start, index in sorted(zip(starts, range(len(starts)))):
            if not lengths[index]:
                continue
            begun = [entry for entry in begun if entry[1] > start]
            for other, _ in begun:
                expected = (index, other) in pairs or (other, index) in pairs
                if expected and overlaps(tensors[index], tensors[other]):  # addresses of different devices may be equal
                    return True
            begun.append((index, start + lengths[index]))
        return False


def _has_address(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and tensor.layout is torch.strided and tensor.device.type != "meta"


def _length(tensor: torch.Tensor) -> Any:
    """The number of bytes from the start of the first element to the end of the last."""
    first, end = extent(tensor)
    return end - first
