"""Measurement of the calls of one operation, on the CPU or with CUDA events."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import torch

from thunder_core.forking import renew_in_child
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall

_LOCK: Final = threading.Lock()  # shared by all, because it is only held for an addition
renew_in_child(sys.modules[__name__], "_LOCK")
_PENDING: Final = 256  # number of pending measurements of a device above which completed ones are collected

Events = tuple[torch.cuda.Event, torch.cuda.Event]


class Tally:
    """The measurements of one operation. It outlives the program, so it holds no reference to it.

    Attributes:
        line: the operation.
        clock: "cpu", or the device that measures.
    """

    def __init__(self, line: Line, clock: str = "cpu") -> None:
        self.line = line
        self.clock = clock
        self._calls = 0
        self._nanoseconds = 0.0

    def add(self, nanoseconds: float) -> None:
        """Add a call."""
        with _LOCK:
            self._calls += 1
            self._nanoseconds += nanoseconds

    def read(self) -> tuple[int, float]:
        """The number of calls, and their total time in seconds."""
        with _LOCK:
            return self._calls, self._nanoseconds / 1e9

    def reset(self) -> None:
        """Discard the calls so far."""
        with _LOCK:
            self._calls = 0
            self._nanoseconds = 0.0


class CudaTally(Tally):
    """The measurements of an operation on a CUDA device, by pairs of events. Only `read` and `reset` synchronize."""

    def __init__(self, line: Line, device: torch.device) -> None:
        super().__init__(line, str(device))
        self._pending: deque[Events] = deque()
        self._free: list[Events] = []

    def events(self) -> Events:
        """Two events for the next call."""
        try:
            return self._free.pop()
        except IndexError:
            return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def recorded(self, events: Events) -> None:
        """Register events that have been recorded in a stream."""
        self._pending.append(events)
        if len(self._pending) > _PENDING:
            self._collect(wait=False)

    def read(self) -> tuple[int, float]:
        """See `Tally.read`; synchronizes."""
        self._collect(wait=True)
        return super().read()

    def reset(self) -> None:
        """See `Tally.reset`; synchronizes."""
        self._collect(wait=True)
        super().reset()

    def _collect(self, *, wait: bool) -> None:
        """Add the times that the device has measured: of all calls, or of the oldest ones that have finished."""
        while True:
            try:
                start, end = self._pending.popleft()
            except IndexError:
                return
            if wait:
                end.synchronize()
            elif not end.query():
                self._pending.appendleft((start, end))
                return
            self.add(start.elapsed_time(end) * 1e6)
            self._free.append((start, end))


class TimedCall(LineCall):
    """Measures with the CPU's clock, from right before the call to right after it."""

    __slots__ = ("tally",)

    def __init__(self, function: Callable[..., Any], tally: Tally) -> None:
        super().__init__(tally.line, function)
        self.tally = tally

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = perf_counter_ns()
        result = self.function(*args, **kwargs)
        end = perf_counter_ns()
        self.tally.add(end - start)
        return result


class CudaTimedCall(LineCall):
    """Measures with events in the current stream. Calls that a CUDA graph captures are not measured."""

    __slots__ = ("device", "tally")

    def __init__(self, function: Callable[..., Any], tally: CudaTally, device: torch.device) -> None:
        super().__init__(tally.line, function)
        self.tally = tally
        self.device = device

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.cuda.is_current_stream_capturing():
            return self.function(*args, **kwargs)
        events = self.tally.events()
        stream = torch.cuda.current_stream(self.device)
        events[0].record(stream)
        result = self.function(*args, **kwargs)
        events[1].record(stream)
        self.tally.recorded(events)
        return result


def timed_call(line: Line, function: Callable[..., Any], device: torch.device | None) -> TimedCall | CudaTimedCall:
    """The measured call of an operation on this device; None for one without tensors."""
    if device is not None and device.type == "cuda":
        return CudaTimedCall(function, CudaTally(line, device), device)
    return TimedCall(function, Tally(line))
