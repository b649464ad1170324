"""Captures and replays on a CUDA device."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_plugin_cudagraphs.backend import Capture, Layout
from thunder_plugin_cudagraphs.pytorch_internals import (
    construct_cuda_tensor,
    construct_storage_from_data_pointer,
    current_raw_stream,
    end_allocate_to_pool,
    is_current_stream_capturing,
    len_torch_dispatch_stack,
    release_pool,
    sleep,
    tensors_data_ptrs_at_indices_equal,
)

_CYCLES: Final = 2e9
"""Of the device in a second, about."""
_LONGEST_DELAY: Final = 0.1
"""In seconds. The launch queue is full by then."""


@dataclass(frozen=True, slots=True, eq=False)
class CUDAPool:
    """A pool of the caching allocator.

    Attributes:
        id: its id in the allocator.
        keeper: a graph captured in the pool: the allocator frees a pool with its last graph.
    """

    id: Any
    keeper: torch.cuda.CUDAGraph


class CUDATimer:
    """The times of a call on the current stream, by events."""

    def __init__(self, device: torch.device, delay: float) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._stream.synchronize()
        if delay:
            with torch.cuda.device(device):
                sleep(int(min(delay, _LONGEST_DELAY) * _CYCLES))
        self._start.record(self._stream)
        self.host = time.perf_counter()

    def stop(self) -> None:
        """See `Timer`."""
        self.host = time.perf_counter() - self.host
        self._end.record(self._stream)

    def device(self) -> float:
        """See `Timer`."""
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) / 1e3


class CUDABackend:
    """One CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._index = torch.cuda.current_device() if device.index is None else device.index
        # shared by all, because memory is reused on the stream on which it was allocated
        self._capturing = torch.cuda.Stream(device)
        self._last: torch.cuda.Stream | None = None
        self._last_handle = -1
        self._failed: list[torch.cuda.CUDAGraph] = []

    def why_not_now(self) -> str | None:
        """See `Backend`."""
        if is_current_stream_capturing():
            return "the stream is being captured by other code"
        if len_torch_dispatch_stack():
            return "a dispatch mode is active"
        return None

    def new_pool(self) -> CUDAPool:
        """See `Backend`."""
        handle = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._captured(graph, handle, lambda: torch.zeros(1, device=self.device))
        return CUDAPool(handle, graph)

    def pool_bytes(self, pool: CUDAPool) -> int:
        """See `Backend`."""
        return sum(end - start for start, end in _segments(pool.id))

    def free_bytes(self) -> int:
        """See `Backend`."""
        free, _ = torch.cuda.mem_get_info(self.device)
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return free + cached

    def timer(self, delay: float) -> CUDATimer:
        """See `Backend`."""
        return CUDATimer(self.device, delay)

    def capture(
        self,
        pool: CUDAPool,
        function: Callable[[list[Any]], Sequence[Any]],
        arguments: list[Any],
        generators: Sequence[torch.Generator],
    ) -> Capture:
        """See `Backend`."""
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()  # the pool cannot use memory that is cached for eager
        outputs = self._captured(graph, pool.id, lambda: function(arguments))
        return Capture(graph.replay, outputs, _segments(pool.id))

    def _captured(self, graph: torch.cuda.CUDAGraph, pool: Any, run: Callable[[], Any]) -> Any:
        """The result of ``run``. `torch.cuda.graph` would stay on its stream if the capture cannot be ended."""
        collects = gc.isenabled()
        gc.disable()  # garbage may include graphs and events, which must not be freed during a capture
        try:
            with torch.cuda.device(self._index), torch.cuda.stream(self._capturing):
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    outputs = run()
                    graph.capture_end()
                except BaseException:
                    self._abandon(graph, pool)
                    raise
        finally:
            if collects:
                gc.enable()
            # When a capture begins, PyTorch enqueues writes of the seed and offset of random numbers on this stream. A
            # replay on another stream writes them there: on a busy GPU it was overtaken, and drew other numbers.
            self._capturing.synchronize()
        return outputs

    def _abandon(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        """End a failed capture, so that the allocator and the generators do not continue it."""
        self._failed.append(graph)  # the allocator may still call it
        with suppress(RuntimeError):  # raises the error of the capture, but ends it
            graph.capture_end()
        with suppress(RuntimeError):  # raises if the previous line succeeded
            end_allocate_to_pool(self._index, pool)
            release_pool(self._index, pool)
        mend = torch.cuda.CUDAGraph()  # a successful capture unregisters the generators
        mend.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
        torch.zeros(1, device=self.device)
        mend.capture_end()

    def order(self) -> None:
        """See `Backend`."""
        handle = current_raw_stream(self._index)
        if handle == self._last_handle:
            return
        stream = torch.cuda.current_stream(self.device)
        if self._last is not None:
            stream.wait_stream(self._last)
        self._last, self._last_handle = stream, handle

    def storage(self, address: int, nbytes: int) -> torch.UntypedStorage:
        """See `Backend`."""
        result: torch.UntypedStorage = construct_storage_from_data_pointer(address, self.device, nbytes)
        return result

    def tensor(self, storage: torch.UntypedStorage, layout: Layout) -> torch.Tensor:
        """See `Backend`."""
        result: torch.Tensor = construct_cuda_tensor(layout.metadata, storage)
        return result

    def same_addresses(self, values: list[Any], addresses: list[int | None], positions: list[int]) -> bool:
        """See `Backend`."""
        same: bool = tensors_data_ptrs_at_indices_equal(values, addresses, positions)
        return same

    def move_out(self, storage: torch.UntypedStorage) -> bool:
        """See `Backend`."""
        before = storage.data_ptr()
        storage.resize_(storage.nbytes())  # allocates and copies, whatever the size was
        return storage.data_ptr() != before

    def synchronize(self) -> None:
        """See `Backend`."""
        torch.cuda.synchronize(self.device)


def _segments(pool: Any) -> list[tuple[int, int]]:
    segments = torch.cuda.memory_snapshot(pool)
    return [
        (segment["address"], segment["address"] + segment["total_size"])
        for segment in segments
        if tuple(segment.get("segment_pool_id", pool)) == tuple(pool)
    ]
