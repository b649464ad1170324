"""The interface of a device that can capture graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from thunder_plugin_cudagraphs.trial import Timer


@dataclass(frozen=True, slots=True)
class Capture:
    """A captured program.

    Attributes:
        replay: runs it on the captured inputs and writes the results to the memory of ``outputs``.
        outputs: the results of the capture, which have no contents before the first replay.
        segments: start and end of each segment of the pool.
    """

    replay: Callable[[], None]
    outputs: Sequence[Any]
    segments: Sequence[tuple[int, int]]


class Layout:
    """Sizes, strides and offset of a tensor in its storage, in elements; ``metadata`` has them in PyTorch's format."""

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
        """The layout of ``tensor``."""
        return Layout(tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.dtype, tensor.device)


class Backend(Protocol):
    """A device that can capture."""

    device: torch.device

    def why_not_now(self) -> str | None:
        """The reason why neither capture nor replay is possible now; None if they are."""
        ...

    def new_pool(self) -> Any:
        """A memory pool, which lives as long as the returned handle."""
        ...

    def pool_bytes(self, pool: Any) -> int:
        """The size of a pool, in bytes."""
        ...

    def free_bytes(self) -> int:
        """The memory that a new pool could take, in bytes."""
        ...

    def timer(self, delay: float) -> Timer:
        """Wait until the device is idle, keep it busy for about ``delay`` seconds, and start to time a call."""
        ...

    def capture(
        self,
        pool: Any,
        function: Callable[[list[Any]], Sequence[Any]],
        arguments: list[Any],
        generators: Sequence[torch.Generator],
    ) -> Capture:
        """Capture the call ``function(arguments)``, which empties the list, without executing any kernel.

        Memory is allocated from the pool. An exception of the function is raised again, with the device in its previous
        state.
        """
        ...

    def order(self) -> None:
        """Make later work wait for all replays so far, on any stream."""
        ...

    def storage(self, address: int, nbytes: int) -> torch.UntypedStorage:
        """A storage over memory that it does not own."""
        ...

    def tensor(self, storage: torch.UntypedStorage, layout: Layout) -> torch.Tensor:
        """A tensor with this layout in a storage."""
        ...

    def same_addresses(self, values: list[Any], addresses: list[int | None], positions: list[int]) -> bool:
        """Whether the tensors at these positions lie at these addresses."""
        ...

    def move_out(self, storage: torch.UntypedStorage) -> bool:
        """Move the contents of a storage that the allocator owns to other memory; False if that is impossible."""
        ...

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        ...
