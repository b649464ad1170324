"""What ran on the device, as PyTorch's profiler records it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.profiling.classes import class_of


@dataclass(frozen=True)
class Kernel:
    """A kernel on a GPU, a copy or a fill; on a CPU an operator.

    Attributes:
        name: what the profiler calls it.
        kind: its class.
        seconds: of one step, in all its launches; of an operator without those that it calls.
        launches: in one step.
    """

    name: str
    kind: str
    seconds: float
    launches: float

    def as_json(self) -> dict[str, Any]:
        """The kernel as plain data."""
        return asdict(self)


def record(steps: Callable[[], object], count: int, device: str) -> tuple[list[Kernel], float]:
    """The kernels of ``count`` steps, longest first, and the seconds of a step while they were recorded.

    ``steps`` runs them and ends when the device has done them.
    """
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device == "cuda")
    with profile(activities=activities, acc_events=True) as recorded:
        start = time.perf_counter()
        steps()
        seconds = time.perf_counter() - start
    return kernels_of(recorded.key_averages(), count, device), seconds / count


def kernels_of(events: Iterable[Any], count: int, device: str) -> list[Kernel]:
    """The kernels among the profiler's averages over ``count`` steps, longest first.

    On a GPU a range that is named on the host, as the optimizer's step is, is an event as well: it is the time from its
    first kernel to its last, all of which are counted by themselves.
    """
    kernels = []
    for event in events:
        if event.device_type.name.lower() != device or (device == "cuda" and event.is_user_annotation):
            continue
        seconds = (event.self_device_time_total if device == "cuda" else event.self_cpu_time_total) / 1e6
        kernels.append(Kernel(event.key, class_of(event.key, device), seconds / count, event.count / count))
    return sorted(kernels, key=lambda kernel: -kernel.seconds)


def as_text(kernels: Iterable[Kernel]) -> str:
    """A line for each: milliseconds and launches of a step, microseconds of a launch, class and name."""
    return "\n".join(
        f"{kernel.seconds * 1e3:9.3f} ms {kernel.launches:7.1f} x {kernel.seconds / kernel.launches * 1e6:9.1f} us  "
        f"{kernel.kind:<34}{kernel.name}"
        for kernel in kernels
    )
