"""A device that captures on the CPU: it runs the program again at each replay, into the same memory.

It is as hostile as a real one: at each replay all memory that the graph was free to use is overwritten, and what was
captured lives at fixed addresses that nobody keeps alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import increment_version
from torch.multiprocessing.reductions import StorageWeakRef

from thunder_plugin_cudagraphs.backend import Capture, Layout

SIZE = 1 << 20
GARBAGE = 0xAB
ALIGNMENT = 64


class Arena:
    """The memory of a pool: blocks that belong to storages, first fit."""

    def __init__(self) -> None:
        self.memory = torch.zeros(SIZE, dtype=torch.uint8)
        self.start = self.memory.data_ptr()
        self.blocks: list[tuple[int, int, StorageWeakRef]] = []

    def in_use(self) -> list[tuple[int, int]]:
        """Offsets of blocks whose storage is alive."""
        self.blocks = [block for block in self.blocks if not block[2].expired()]
        return sorted((start, end) for start, end, _ in self.blocks)

    def allocate(self, nbytes: int) -> torch.UntypedStorage:
        """A storage over free memory, which is in use as long as the storage lives."""
        place = 0
        for start, end in self.in_use():
            if start - place >= nbytes:
                break
            place = max(place, -(-end // ALIGNMENT) * ALIGNMENT)
        assert place + nbytes <= SIZE, "the arena is too small for this test"
        storage = show(self.start + place, nbytes)
        self.blocks.append((place, place + nbytes, StorageWeakRef(storage)))
        return storage


def show(address: int, nbytes: int) -> torch.UntypedStorage:
    """A storage that does not own its memory."""
    return torch._C._construct_storage_from_data_pointer(address, torch.device("cpu"), nbytes)  # type: ignore[return-value]


def tensor_in(storage: torch.UntypedStorage, layout: Layout) -> torch.Tensor:
    return torch.empty(0, dtype=layout.dtype).set_(storage, layout.offset, layout.size, layout.stride)


class Argument:
    """A tensor that a program was captured with: its address, and no more."""

    def __init__(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.start, self.nbytes, self.layout = storage.data_ptr(), storage.nbytes(), Layout.of(tensor)
        self.requires_grad = tensor.requires_grad

    def value(self) -> torch.Tensor:
        return tensor_in(show(self.start, self.nbytes), self.layout)

    def copy(self, copies: dict[int, torch.UntypedStorage]) -> torch.Tensor:
        """The same elsewhere; what shares memory does so there, too."""
        if self.start not in copies:
            copies[self.start] = show(self.start, self.nbytes).clone()
        return tensor_in(copies[self.start], self.layout)


class FakeTimer:
    """The times of a call: those of replays if there was one meanwhile."""

    def __init__(self, backend: RecordingBackend) -> None:
        self.backend, self.replays, self.host = backend, backend.replays, 0.0

    def stop(self) -> None:
        replayed = self.backend.replays > self.replays
        self.host, self.seconds = self.backend.replay_times if replayed else self.backend.launch_times

    def device(self) -> float:
        return self.seconds


class RecordingBackend:
    """Counts what it does.

    Attributes:
        captures, replays: how often.
        fails: the next captures raise this.
        launch_times, replay_times: seconds of host and device for a call.
        delays: for each timed call, how long the device was kept busy.
        free: free memory.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.captures = self.replays = 0
        self.fails: list[Exception] = []
        self.launch_times, self.replay_times = (2.0, 1.0), (0.1, 1.0)
        self.delays: list[float] = []
        self.free = 1 << 30

    def why_not_now(self) -> str | None:
        return "a mode is active" if torch._C._len_torch_dispatch_stack() else None

    def new_pool(self) -> Arena:
        return Arena()

    def pool_bytes(self, pool: Arena) -> int:
        return SIZE

    def free_bytes(self) -> int:
        return self.free

    def timer(self, delay: float) -> FakeTimer:
        self.delays.append(delay)
        return FakeTimer(self)

    def capture(
        self,
        pool: Arena,
        function: Callable[[list[Any]], Sequence[Any]],
        arguments: list[Any],
        generators: Sequence[torch.Generator],
    ) -> Capture:
        assert not generators
        if self.fails:
            arguments.clear()
            raise self.fails.pop()
        given = [Argument(value) if isinstance(value, torch.Tensor) else value for value in arguments]
        tensors = [ref(value) for value in arguments if isinstance(value, torch.Tensor)]
        arguments.clear()
        copies: dict[int, torch.UntypedStorage] = {}
        trial = [value.copy(copies) if isinstance(value, Argument) else value for value in given]
        versions = [(value, value._version) for value in trial if isinstance(value, torch.Tensor)]
        with torch.random.fork_rng(devices=[]):
            results = function(trial)
        for tensor, (copy, version) in zip(tensors, versions, strict=True):
            value = tensor()
            if value is not None and not value.is_inference() and copy._version != version:
                increment_version(value)  # PyTorch counts writes while they are captured
        held = pool.in_use()
        addresses = {copy.data_ptr(): start for start, copy in copies.items()}
        made: dict[int, torch.UntypedStorage] = {}
        outputs: list[Any] = []
        for value in results:
            storage = value.untyped_storage() if isinstance(value, torch.Tensor) else None
            if storage is None or not value.numel():
                outputs.append(value)
            elif storage.data_ptr() in addresses:
                outputs.append(tensor_in(show(addresses[storage.data_ptr()], storage.nbytes()), Layout.of(value)))
            else:
                if storage.data_ptr() not in made:
                    made[storage.data_ptr()] = pool.allocate(storage.nbytes())
                outputs.append(tensor_in(made[storage.data_ptr()], Layout.of(value)))
        places = [
            value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) and pool_has(pool, value) else None
            for value in outputs
        ]
        self.captures += 1

        def replay() -> None:
            self.replays += 1
            values = function([value.value() if isinstance(value, Argument) else value for value in given])
            contents = [
                value.untyped_storage().clone() if isinstance(value, torch.Tensor) else None for value in values
            ]
            untouched = [(start, pool.memory[start:end].clone()) for start, end in held]
            pool.memory.fill_(GARBAGE)
            for start, content in untouched:
                pool.memory[start : start + len(content)] = content
            for place, content in zip(places, contents, strict=True):
                if place is not None and content is not None:
                    show(place, content.nbytes()).copy_(content)

        return Capture(replay, outputs, [(pool.start, pool.start + SIZE)])

    def order(self) -> None:
        pass

    def storage(self, address: int, nbytes: int) -> torch.UntypedStorage:
        return show(address, nbytes)

    def tensor(self, storage: torch.UntypedStorage, layout: Layout) -> torch.Tensor:
        return tensor_in(storage, layout)

    def same_addresses(self, values: list[Any], addresses: list[int | None], positions: list[int]) -> bool:
        return all(values[position].data_ptr() == addresses[position] for position in positions)

    def move_out(self, storage: torch.UntypedStorage) -> bool:
        return False

    def synchronize(self) -> None:
        pass


def pool_has(pool: Arena, value: torch.Tensor) -> bool:
    return value.numel() > 0 and pool.start <= value.data_ptr() < pool.start + SIZE
