"""Kernels and operators recorded by PyTorch's profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.profiling.classes import class_of


@dataclass(frozen=True)
class Kernel:
    """A kernel, copy or fill on a GPU, or an operator on a CPU.

    Attributes:
        name: its name in the profile.
        kind: its class.
        seconds: time per step of all launches; for an operator its self time.
        launches: number of launches per step.
    """

    name: str
    kind: str
    seconds: float
    launches: float

    def as_json(self) -> dict[str, Any]:
        """The kernel as plain data."""
        return asdict(self)


def record(steps: Callable[[], object], count: int, device: str) -> tuple[list[Kernel], float]:
    """The kernels of ``count`` steps, longest first, and the seconds of a step under the profiler.

    ``steps`` runs the steps and synchronizes with the device.
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

    On a GPU, events of user annotations such as the optimizer's step are skipped: they are the time from the first to
    the last of their kernels, which have events as well.
    """
    kernels = []
    for event in events:
        if event.device_type.name.lower() != device or (device == "cuda" and event.is_user_annotation):
            continue
        seconds = (event.self_device_time_total if device == "cuda" else event.self_cpu_time_total) / 1e6
        kernels.append(Kernel(event.key, class_of(event.key, device), seconds / count, event.count / count))
    return sorted(kernels, key=lambda kernel: -kernel.seconds)


def as_text(kernels: Iterable[Kernel]) -> str:
    """A line for each kernel: milliseconds and launches per step, microseconds per launch, class and name."""
    return "\n".join(
        f"{kernel.seconds * 1e3:9.3f} ms {kernel.launches:7.1f} x {kernel.seconds / kernel.launches * 1e6:9.1f} us  "
        f"{kernel.kind:<34}{kernel.name}"
        for kernel in kernels
    )
