"""What the bookkeeping asks of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch


@dataclass(frozen=True, slots=True)
class Capture:
    """A captured program.

    Attributes:
        replay: runs it, on the inputs that it was captured with, into the memory of ``outputs``.
        outputs: what it returned; nothing is computed yet.
        segments: start and end of all memory of the pool.
    """

    replay: Callable[[], None]
    outputs: Sequence[Any]
    segments: Sequence[tuple[int, int]]


class Layout:
    """Where a tensor lies in its storage, in elements. ``metadata`` has the same as PyTorch wants it."""

    __slots__ = ("dtype", "metadata", "offset", "size", "stride")

    def __init__(
        self, size: Sequence[int], stride: Sequence[int], offset: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.size = tuple(size)
        self.stride = tuple(stride)
        self.offset = offset
        self.dtype = dtype
        self.metadata = {
            "size": self.size,
            "stride": self.stride,
            "storage_offset": offset,
            "dtype": dtype,
            "device": device,
        }

    @staticmethod
    def of(tensor: torch.Tensor) -> Layout:
        """That of ``tensor``."""
        return Layout(tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.dtype, tensor.device)


class Backend(Protocol):
    """A device that can capture."""

    device: torch.device

    def why_not_now(self) -> str | None:
        """Why neither capture nor replay is possible at this moment; None if they are."""
        ...

    def new_pool(self) -> Any:
        """Memory that lives as long as what is returned."""
        ...

    def pool_bytes(self, pool: Any) -> int:
        """Its size."""
        ...

    def capture(
        self,
        pool: Any,
        function: Callable[[list[Any]], Sequence[Any]],
        arguments: list[Any],
        generators: Sequence[torch.Generator],
    ) -> Capture:
        """Capture the call ``function(arguments)``, which empties the list, without running anything.

        Memory is taken from the pool. What the function raises is passed on; the device is as before then.
        """
        ...

    def order(self) -> None:
        """What is queued from now on runs after all replays so far, on whichever streams they were."""
        ...

    def storage(self, address: int, nbytes: int) -> torch.UntypedStorage:
        """A storage that shows memory and does not own it."""
        ...

    def tensor(self, storage: torch.UntypedStorage, layout: Layout) -> torch.Tensor:
        """A tensor in a storage."""
        ...

    def same_addresses(self, values: list[Any], addresses: list[int | None], positions: list[int]) -> bool:
        """Whether the tensors at these positions lie at these addresses."""
        ...

    def move_out(self, storage: torch.UntypedStorage) -> bool:
        """Move the content of a storage that the allocator owns to other memory; False if that is impossible."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done everything."""
        ...
