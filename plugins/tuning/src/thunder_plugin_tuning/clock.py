"""Clocks: the time of calls, and of the search."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

import torch


class Clock:
    """Measures calls on the host, which wait for their results."""

    def now(self) -> float:
        """Seconds since some point in time."""
        return perf_counter()

    def seconds(self, call: Callable[[], object], count: int) -> float:
        """The seconds that ``count`` calls take, one after the other."""
        start = self.now()
        for _ in range(count):
            call()
        return self.now() - start


class CudaClock(Clock):
    """Measures calls with CUDA events: from the begin of the first call to the end of the last one on the device."""

    def seconds(self, call: Callable[[], object], count: int) -> float:
        """See `Clock.seconds`. The device is idle before the first call."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3


def clock_for(tensors: Iterable[torch.Tensor]) -> Clock:
    """The clock of a program on these tensors."""
    return CudaClock() if any(tensor.is_cuda for tensor in tensors) else Clock()
