"""Measurement of one implementation on one workload, in its process."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.process import yield_turn
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.tasks import Task

HOST_STEPS = 5
FIRST_STEPS = 2
"""Number of steps that compile everything and fill the caches."""
TURN = 0.1
"""Least seconds of a turn: much longer than a process switch, and shorter than changes of the machine's speed."""
STEPS_OF_TURN = 3
"""Least number of steps of a turn."""


def measure(
    workload: dict[str, Any],
    implementation: str,
    kernels: str | None = None,
    first_only: bool = False,
    turns: int = 0,
) -> dict[str, Any]:
    """Run the steps of a workload and measure them.

    Args:
        workload: the fields of a `Workload`.
        implementation: see `benchmarks.implementations`.
        kernels: a key of `OTHER_KERNELS`, to run with kernels that round differently, and with other random numbers.
        first_only: stop after `FIRST_STEPS`.
        turns: number of turns with timed steps, on a CPU. The process pauses before each. 0: no turns.

    Returns:
        ``losses`` of the compared steps; seconds of the ``first`` step, compilation included; Thunder's ``stages``;
        number of ``compilations`` and ``notes``, see `compilations_of` and `notes_of`;
        seconds of the timed ``steps`` (from CUDA events on a GPU); seconds that the ``host`` needs to enqueue a step on
        an idle device (on a GPU; it waits for the device if more than a thousand kernels are queued); ``items`` of a
        step; and ``memory`` in bytes.
    """
    import torch

    from benchmarks.implementations import compilations_of, notes_of, stages_of
    from benchmarks.losses import OTHER_KERNELS
    from benchmarks.tasks import TASKS

    work = Workload(**workload)
    cuda = work.device == "cuda"
    if cuda and work.precision == "bf16-autocast":
        # What autocast leaves in float32 runs in TF32, as in most users' programs.
        torch.set_float32_matmul_precision("high")
    task: Task = TASKS[work.task](work)
    if kernels:
        torch.manual_seed(1)  # the random numbers of dropout are as arbitrary as the rounding of kernels
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    with OTHER_KERNELS[work.device][kernels]() if kernels else contextlib.nullcontext():
        start = time.perf_counter()
        compiled = task.compile(implementation)
        result = task.step(compiled, 0)
        synchronize(work.device)
        first = time.perf_counter() - start
        stages = stages_of(implementation, compiled)
        losses = [task.loss(result, 0)]
        del result
        marks = [_mark(work.device)]
        for index in range(1, FIRST_STEPS if first_only else work.steps):
            result = task.step(compiled, index)
            if index < task.compared:
                losses.append(task.loss(result, index))
            del result
            marks.append(_mark(work.device))
        synchronize(work.device)
        if turns:
            times = _in_turns(lambda: task.step(compiled, work.steps), turns)
        else:
            times = [_seconds(before, after) for before, after in itertools.pairwise(marks)][-work.timed :]
        return {
            "losses": [loss.item() for loss in losses],
            "first": first,
            "stages": stages,
            "compilations": compilations_of(implementation, compiled),
            "notes": notes_of(implementation, compiled),
            "steps": times,
            "host": _host_seconds(task, compiled, work.steps) if _enqueues(work) and not first_only else [],
            "items": task.items,
            "memory": peak_memory(cuda, lambda: task.step(compiled, work.steps + HOST_STEPS)),
        }


def _enqueues(work: Workload) -> bool:
    """Whether the host enqueues whole steps on a device. `generate` waits for each token."""
    return work.device == "cuda" and work.task != "generation"


def _in_turns(step: Callable[[], Any], turns: int) -> list[float]:
    """The median of each turn."""
    medians = []
    for _ in range(turns):
        yield_turn()
        step()  # not timed: other processes have evicted the caches of the processor
        marks = [time.perf_counter()]
        while marks[-1] < marks[0] + TURN or len(marks) <= STEPS_OF_TURN:
            step()
            marks.append(time.perf_counter())
        medians.append(statistics.median(after - before for before, after in itertools.pairwise(marks)))
    return medians


def _host_seconds(task: Task, compiled: Callable[..., Any], index: int) -> list[float]:
    times = []
    for number in range(HOST_STEPS):
        synchronize("cuda")
        start = time.perf_counter()
        task.step(compiled, index + number)
        times.append(time.perf_counter() - start)
    return times


def peak_memory(cuda: bool, step: Callable[[], Any]) -> dict[str, int]:
    """Peak memory in bytes: on a GPU since the last reset, on a CPU the additional memory of one more step."""
    if cuda:
        import torch

        return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    from benchmarks.memory import peak_of_call
    from benchmarks.process import resident_high_water

    return {"allocated": peak_of_call(step), "resident": resident_high_water()}


def synchronize(device: str) -> None:
    """Wait for all work of the device."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _mark(device: str) -> Any:
    """A time stamp of the device, recorded without synchronization."""
    import torch

    if device == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(before: Any, after: Any) -> float:
    return after - before if isinstance(before, float) else before.elapsed_time(after) / 1e3
