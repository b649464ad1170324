"""Results of a graph that share storage."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.ir.geometry import nested
from thunder_plugin_cudagraphs.backend import Backend, Layout
from thunder_plugin_cudagraphs.memory import Held, Pool


class OutputGroup:
    """Results that share a storage, which the graph writes at each replay.

    Attributes:
        start, nbytes: of the storage.
        members: position of each among the results, and its layout in the storage.
        saved: whether they are saved for backward, which reads them at this address.
        copied: whether the caller gets copies.
    """

    __slots__ = ("_flat", "_source", "copied", "members", "nbytes", "saved", "start")

    def __init__(self, start: int, nbytes: int, saved: bool) -> None:
        self.start = start
        self.nbytes = nbytes
        self.members: list[tuple[int, Layout]] = []
        self.saved = saved
        self.copied = False
        self._source: torch.Tensor | None = None
        self._flat = False

    @property
    def bytes_to_copy(self) -> int:
        """The size of a copy: the elements of a single tensor, or the whole storage."""
        layout = self.members[0][1]
        if len(self.members) > 1:
            return self.nbytes
        return min(self.nbytes, torch.Size(layout.size).numel() * layout.dtype.itemsize)

    def give(self, results: list[Any], pool: Pool, backend: Backend) -> None:
        """Tensors in the storage, which is in use as long as one of them exists."""
        storage = backend.storage(self.start, self.nbytes)
        for position, layout in self.members:
            results[position] = backend.tensor(storage, layout)
        pool.add(Held(storage, self.start, self.start + self.nbytes, self, False))

    def copy(self, results: list[Any], backend: Backend, targets: list[torch.Tensor], sources: list[Any]) -> None:
        """Tensors in a new storage. The copies to make are added to ``targets`` and ``sources``."""
        source = self._source if self._source is not None else self._prepare(backend)
        if self._flat:
            target = torch.empty_like(source)
            storage = target.untyped_storage()
            for position, layout in self.members:
                results[position] = backend.tensor(storage, layout)
        else:
            position, layout = self.members[0]
            target = torch.empty_strided(layout.size, layout.stride, dtype=layout.dtype, device=source.device)
            results[position] = target
        targets.append(target)
        sources.append(source)

    def _prepare(self, backend: Backend) -> torch.Tensor:
        """The source of a copy: the only tensor, or all bytes if tensors or elements overlap."""
        storage = backend.storage(self.start, self.nbytes)
        layout = self.members[0][1]
        self._source = backend.tensor(storage, layout)
        self._flat = len(self.members) > 1 or not nested(layout.size, layout.stride)
        if self._flat:
            self._source = backend.tensor(storage, Layout((self.nbytes,), (1,), 0, torch.uint8, backend.device))
        return self._source
