"""Time calls on a device, each from a cold cache, several implementations in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import torch

from benchmarks.timing import interleaved_medians, no_garbage_collection

Call = Callable[[], object]
FLUSHED = 4
"""How many times the L2 cache of a GPU is read before each call."""
MOST = 0.02
"""Seconds that the host may take to enqueue a call; one that takes longer is timed with the host's part in it."""


def medians(calls: Mapping[str, Call], before: Mapping[str, Call], rounds: int = 9, block: int = 4) -> dict[str, float]:
    """Median seconds of one call of each; they have been called before.

    On a GPU from CUDA events around each call. Before it the L2 cache is filled with other data, which is read only, so
    that no write of it falls into the call; and the GPU waits until the host has enqueued the call, so that no time of
    the host does. ``before`` has what is to be done ahead of a call, outside of its time, by the same names.
    """
    if not torch.cuda.is_initialized():
        return interleaved_medians(dict(calls), rounds=rounds, block=0.002)
    size = FLUSHED * torch.cuda.get_device_properties().L2_cache_size
    other = torch.zeros(size // 4, dtype=torch.int32, device="cuda")
    waits = {name: _wait(call) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in calls}
    with no_garbage_collection():
        for _ in range(rounds):
            for name, call in calls.items():
                found[name] += _block(call, before.get(name), other, waits[name], block)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


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
    """Cycles that the GPU takes longer for than the host takes to enqueue the call."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    torch.cuda.synchronize()
    # At most 2 cycles in a nanosecond; twice the time, because the host is not always as fast.
    return int(2 * min(seconds, MOST) * 2e9)
