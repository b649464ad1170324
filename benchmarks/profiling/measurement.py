"""Measurement of one implementation's training steps, in its process."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.implementations import compile_with, jit_options
from benchmarks.measurement import peak_memory, synchronize
from benchmarks.process import yield_turn
from benchmarks.profiling.recording import as_text, record
from benchmarks.workload import Workload

FIRST_STEPS = 3
"""Number of steps that compile everything, and whose losses are reported."""
WARM_UP = 4
QUEUED_STEPS = 6
RECORDED_STEPS = 2


def measure(
    workload: dict[str, Any], implementation: str, together: bool = False, stem: str | None = None
) -> dict[str, Any]:
    """Run and profile training steps.

    Args:
        workload: the fields of a `Workload` with the task ``training``.
        implementation: see `benchmarks.implementations`.
        together: whether other processes compile at the same time. Then this process releases cached GPU memory and
            pauses after the first steps.
        stem: path prefix of the files for all kernels and, for Thunder, the output of `thunder.explain`.

    Returns:
        Seconds of the ``first`` step, compilation included (None with ``together``); ``losses`` of the first steps;
        seconds of synchronized ``steps``; on a GPU seconds that the ``host`` needs to enqueue a step, and seconds per
        step of ``queued`` steps without synchronization; ``memory`` in bytes after the first steps; the ``kernels`` of
        a step; and the seconds of ``rest``: on a GPU the median step minus its kernels, on a CPU the part of a profiled
        step outside of operators.
    """
    import torch

    from benchmarks.tasks import SPARE, Training

    work = Workload(**workload)
    cuda = work.device == "cuda"
    task = Training(work)
    indices = itertools.cycle(range(work.steps + SPARE))
    start = time.perf_counter()
    compiled = compile_with(implementation, task.program)

    def step() -> torch.Tensor:
        return task.step(compiled, next(indices))

    losses = [step().item()]
    synchronize(work.device)
    first = time.perf_counter() - start
    losses += [step().item() for _ in range(1, FIRST_STEPS)]
    if cuda:
        torch.cuda.empty_cache()
    if together:
        yield_turn()
    _run(step, WARM_UP, work.device)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    steps, host = _each(step, work.steps, work.device)
    queued = _run(step, QUEUED_STEPS, work.device) / QUEUED_STEPS
    memory = peak_memory(cuda, step)
    kernels, recorded = record(lambda: _run(step, RECORDED_STEPS, work.device), RECORDED_STEPS, work.device)
    if stem:
        Path(stem + ".txt").write_text(f"{work.label}: {implementation}\n\n{as_text(kernels)}\n")
        if jit_options(implementation) is not None:
            import thunder

            Path(stem + "-explain.txt").write_text(f"{thunder.explain(compiled).details()}\n")
    return {
        "first": None if together else first,
        "losses": losses,
        "steps": steps,
        "host": host if cuda else [],
        "queued": queued if cuda else None,
        "memory": memory,
        "kernels": [kernel.as_json() for kernel in kernels],
        "rest": (statistics.median(steps) if cuda else recorded) - sum(kernel.seconds for kernel in kernels),
    }


def _each(step: Callable[[], object], count: int, device: str) -> tuple[list[float], list[float]]:
    """Seconds of each step from an idle device to synchronization, and seconds until the host has enqueued it."""
    synchronized, enqueued = [], []
    for _ in range(count):
        start = time.perf_counter()
        step()
        enqueued.append(time.perf_counter() - start)
        synchronize(device)
        synchronized.append(time.perf_counter() - start)
    return synchronized, enqueued


def _run(step: Callable[[], object], count: int, device: str) -> float:
    """Seconds of all steps together."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(device)
    return time.perf_counter() - start
