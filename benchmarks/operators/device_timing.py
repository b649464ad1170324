"""Time calls on a device with a cold L2 cache, alternating between implementations."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

from benchmarks.timing import interleaved_medians, no_garbage_collection

Call = Callable[[], object]
FLUSHED = 4
"""Bytes that are read before each call, as a multiple of the size of the GPU's L2 cache."""
MOST = 0.02
"""Largest host time to enqueue a call, in seconds, that is excluded; the time of longer calls includes host time."""


def medians(calls: Mapping[str, Call], before: Mapping[str, Call], rounds: int = 9, block: int = 4) -> dict[str, float]:
    """Median seconds of one call, by name. The calls must be warmed up.

    Times on a GPU are from CUDA events around each call. Before a call, the L2 cache is filled with other data by
    reads, so that no write-back falls into the call, and the GPU is kept busy until the host has enqueued the call, so
    that host time is excluded. ``before`` has functions that are called before a call, outside of the measured time, by
    name.
    """
    if not torch.cuda.is_initialized():
        return interleaved_medians(dict(calls), rounds=rounds, block=0.002)
    size = FLUSHED * torch.cuda.get_device_properties().L2_cache_size
    other = torch.zeros(size // 4, dtype=torch.int32, device="cuda")
    waits = {name: _wait(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    with no_garbage_collection():
        for _ in range(rounds):
            for name, call in calls.items():
                times[name] += _block(call, before.get(name), other, waits[name], block)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _block(call: Call, before: Call | None, other: torch.Tensor, cycles: int, count: int) -> list[float]:
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for start, end in pairs:
        if before is not None:
            before()
        other.max()
        torch.cuda._sleep(cycles)
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairs]


def _wait(call: Call) -> int:
    """GPU cycles that take longer than the host needs to enqueue the call."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    torch.cuda.synchronize()
    # At 2 cycles per nanosecond, and twice the time, because host times vary.
    return int(2 * min(seconds, MOST) * 2e9)
