"""The memory that graphs share: the results in it that are in use, and those that a replay would overwrite."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import ReferenceType, ref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from thunder_plugin_cudagraphs.pytorch_internals import storage_of_weak_pointer


class Group(Protocol):
    """The owner of results in the memory of a graph."""

    saved: bool
    copied: bool


class Held:
    """A block of memory with results; it has expired when the last tensor in it is freed.

    Attributes:
        start, end: its addresses.
        group: the results in it.
        owned: whether the tensors in it own the memory, so that the allocator knows that it is in use.
    """

    __slots__ = ("_reference", "end", "group", "owned", "start")

    def __init__(self, storage: torch.UntypedStorage, start: int, end: int, group: Group, owned: bool) -> None:
        self._reference = StorageWeakRef(storage)
        self.start = start
        self.end = end
        self.group = group
        self.owned = owned

    @property
    def expired(self) -> bool:
        """Whether no tensor uses it any more."""
        return bool(self._reference.expired())

    def storage(self) -> torch.UntypedStorage | None:
        """The storage, if it is alive."""
        storage: torch.UntypedStorage | None = storage_of_weak_pointer(self._reference.cdata)
        return storage


class Footprint:
    """The addresses that a graph may write.

    Args:
        segments: start and end of all memory that the pool had when the graph was captured.
        held: start and end of each block that was in use during the capture: the graph has none of them.
    """

    __slots__ = ("_ends", "_held", "_starts")

    def __init__(self, segments: Sequence[tuple[int, int]], held: Mapping[int, int]) -> None:
        segments = sorted(segments)
        self._starts = [start for start, _ in segments]
        self._ends = [end for _, end in segments]
        self._held = dict(held)

    def touches(self, start: int, end: int) -> bool:
        """Whether a replay may write between these addresses, which lie in one segment or in none."""
        if self._held.get(start, -1) >= end:
            return False
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and start < self._ends[index]

    def contains(self, address: int) -> bool:
        """Whether the address is in the pool."""
        index = bisect_right(self._starts, address) - 1
        return index >= 0 and address < self._ends[index]


class Pool:
    """A memory pool of the allocator, and the blocks in use. Hold the lock of its device while using it.

    Attributes:
        handle: the backend's handle, which keeps the memory alive.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._owners: dict[int, tuple[torch.Tensor, ReferenceType[Any]]] = {}
        self._held: list[Held] = []

    def add(self, held: Held) -> None:
        """Register a block in use."""
        self._held.append(held)

    def alive(self) -> list[Held]:
        """The blocks in use."""
        if self._held:
            self._held = [held for held in self._held if not held.expired]
        return self._held

    def in_the_way(self, footprint: Footprint) -> list[Held]:
        """The blocks in use that a replay may overwrite."""
        return [held for held in self.alive() if footprint.touches(held.start, held.end)]

    def unowned(self) -> list[Held]:
        """The blocks in use that the allocator considers free: a capture might get them."""
        return [held for held in self.alive() if not held.owned and held.start not in self._owners]

    def own(self, tensor: torch.Tensor, graph: Any) -> None:
        """Hold the tensor that owns a value which ``graph`` saves for backward, until a backward is captured."""
        self._owners[tensor.untyped_storage().data_ptr()] = (tensor, ref(graph))

    def owner(self, address: int) -> torch.Tensor | None:
        """The tensor that owns the memory at this address, if it is held."""
        return self._owners[address][0] if address in self._owners else None

    def disown(self, address: int) -> None:
        """Drop the owning tensor: the allocator frees the memory with the last other tensor in it."""
        self._owners.pop(address, None)

    def trim(self) -> None:
        """Release unused blocks of freed graphs."""
        alive = {held.start for held in self.alive()}
        gone = [start for start, (_, graph) in self._owners.items() if graph() is None and start not in alive]
        for start in gone:
            self.disown(start)

    def find(self, address: int) -> Held | None:
        """The latest live block at this address."""
        return next((held for held in reversed(self._held) if held.start == address and not held.expired), None)

    def moved(self, held: Held) -> None:
        """Mark a block whose contents were moved."""
        self._held.remove(held)
