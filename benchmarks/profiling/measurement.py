"""One implementation's training steps, in a process of its own."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.implementations import asked_of_thunder, compile_with
from benchmarks.measurement import peak_memory, synchronize
from benchmarks.process import give_way
from benchmarks.profiling.recording import as_text, record
from benchmarks.workload import Workload

FIRST_STEPS = 3
"""Their losses are told; everything is compiled after them."""
WARM_UP = 4
QUEUED_STEPS = 6
RECORDED_STEPS = 2


def measure(
    workload: dict[str, Any], implementation: str, together: bool = False, stem: str | None = None
) -> dict[str, Any]:
    """Where the time of a workload's steps goes.

    Args:
        workload: the fields of a `Workload`, a training.
        implementation: what ``--impl`` calls it.
        together: others compile meanwhile. It gives way after the first steps, with little memory of a GPU held.
        stem: how the paths of the files begin that hold all kernels, and for Thunder what `thunder.explain` says.

    Returns:
        Seconds of the ``first`` step with all compilation, unless others compiled meanwhile, ``losses`` of the first
        steps, seconds of ``steps`` after each of which the device is waited for, seconds that the ``host`` takes to
        enqueue each, seconds of a step when they are ``queued`` without waiting (both on a GPU), ``memory`` in bytes
        after the first steps, the ``kernels`` of a step, and the seconds of ``rest``: on a GPU the median step less
        its kernels, on a CPU what a recorded step has outside of its operators.
    """
    import torch

    from benchmarks.task import SPARE
    from benchmarks.training_task import Training

    asked = Workload(**workload)
    cuda = asked.device == "cuda"
    task = Training(asked)
    indices = itertools.cycle(range(asked.steps + SPARE))
    start = time.perf_counter()
    compiled = compile_with(implementation, task.program)

    def step() -> torch.Tensor:
        return task.step(compiled, next(indices))

    losses = [step().item()]
    synchronize(asked.device)
    first = time.perf_counter() - start
    losses += [step().item() for _ in range(1, FIRST_STEPS)]
    if cuda:
        torch.cuda.empty_cache()
    if together:
        give_way()
    _run(step, WARM_UP, asked.device)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    steps, host = _each(step, asked.steps, asked.device)
    queued = _run(step, QUEUED_STEPS, asked.device) / QUEUED_STEPS
    memory = peak_memory(cuda, step)
    kernels, recorded = record(lambda: _run(step, RECORDED_STEPS, asked.device), RECORDED_STEPS, asked.device)
    if stem:
        Path(stem + ".txt").write_text(f"{asked.label}: {implementation}\n\n{as_text(kernels)}\n")
        if asked_of_thunder(implementation) is not None:
            import thunder

            Path(stem + "-explain.txt").write_text(f"{thunder.explain(compiled)}\n")
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
    """Seconds of each step from an idle device to its end, and those until the host had enqueued it."""
    ended, enqueued = [], []
    for _ in range(count):
        start = time.perf_counter()
        step()
        enqueued.append(time.perf_counter() - start)
        synchronize(device)
        ended.append(time.perf_counter() - start)
    return ended, enqueued


def _run(step: Callable[[], object], count: int, device: str) -> float:
    """Seconds of all of them."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(device)
    return time.perf_counter() - start
