"""One implementation on one workload, in a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.process import give_way
from benchmarks.workload import Workload

if TYPE_CHECKING:
    from benchmarks.task import Task

HOST_STEPS = 5
FIRST_STEPS = 2
"""Enough to compile everything, and to fill the caches."""
TURN = 0.1
"""Seconds of steps in a turn: long beside what a change of processes costs, short beside how the machine drifts."""
STEPS_OF_TURN = 3
"""Of long steps so many."""


def measure(
    workload: dict[str, Any],
    implementation: str,
    kernels: str | None = None,
    first_only: bool = False,
    turns: int = 0,
) -> dict[str, Any]:
    """What a workload costs.

    Args:
        workload: the fields of a `Workload`.
        implementation: what ``--impl`` calls it.
        kernels: a name in `OTHER_KERNELS`, to run with kernels that round differently.
        first_only: stop after the first steps; everything else has the shapes that it would have.
        turns: number of turns in which steps are timed, on a CPU; others have theirs before each. 0: at once.

    Returns:
        ``losses`` of the steps that are compared, seconds of the ``first`` step with all compilation, the ``stages`` of
        Thunder's, seconds of the timed ``steps`` (from CUDA events on a GPU), seconds the ``host`` takes to enqueue a
        step from an idle device (on a GPU; more than a thousand waiting kernels make it wait for the device),
        ``items`` of a step, and ``memory`` in bytes.
    """
    import torch

    from benchmarks.implementations import compile_with
    from benchmarks.inference_tasks import Decode, Prefill
    from benchmarks.kernels import OTHER_KERNELS
    from benchmarks.stages import stages_of
    from benchmarks.training_task import Training

    asked = Workload(**workload)
    cuda = asked.device == "cuda"
    task: Task = {"training": Training, "prefill": Prefill, "decode": Decode}[asked.task](asked)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    with OTHER_KERNELS[asked.device][kernels]() if kernels else contextlib.nullcontext():
        start = time.perf_counter()
        compiled = compile_with(implementation, task.program)
        result = task.step(compiled, 0)
        synchronize(asked.device)
        first = time.perf_counter() - start
        stages = stages_of(implementation, compiled)
        losses = [task.loss(result, 0)]
        del result
        marks = [_mark(asked.device)]
        for index in range(1, FIRST_STEPS if first_only else asked.steps):
            result = task.step(compiled, index)
            if index < task.compared:
                losses.append(task.loss(result, index))
            del result
            marks.append(_mark(asked.device))
        synchronize(asked.device)
        if turns:
            times = _in_turns(lambda: task.step(compiled, asked.steps), turns)
        else:
            times = [_seconds(before, after) for before, after in itertools.pairwise(marks)][-asked.timed :]
        return {
            "losses": [loss.item() for loss in losses],
            "first": first,
            "stages": stages,
            "steps": times,
            "host": _host_seconds(task, compiled, asked.steps) if cuda and not first_only else [],
            "items": task.items,
            "memory": peak_memory(cuda, lambda: task.step(compiled, asked.steps + HOST_STEPS)),
        }


def _in_turns(step: Callable[[], Any], turns: int) -> list[float]:
    """The median of each turn."""
    found = []
    for _ in range(turns):
        give_way()
        step()  # finds the caches of the processor full of what others read
        marks = [time.perf_counter()]
        while marks[-1] < marks[0] + TURN or len(marks) <= STEPS_OF_TURN:
            step()
            marks.append(time.perf_counter())
        found.append(statistics.median(after - before for before, after in itertools.pairwise(marks)))
    return found


def _host_seconds(task: Task, compiled: Callable[..., Any], index: int) -> list[float]:
    found = []
    for number in range(HOST_STEPS):
        synchronize("cuda")
        start = time.perf_counter()
        task.step(compiled, index + number)
        found.append(time.perf_counter() - start)
    return found


def peak_memory(cuda: bool, step: Callable[[], Any]) -> dict[str, int]:
    """Peaks in bytes. On a GPU since they were reset; on a CPU of one more step, above what was there before it."""
    if cuda:
        import torch

        return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    from benchmarks.memory import peak_of_call
    from benchmarks.process import resident_high_water

    return {"allocated": peak_of_call(step), "resident": resident_high_water()}


def synchronize(device: str) -> None:
    """Wait for the device."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _mark(device: str) -> Any:
    """A moment in the device's time; nothing waits for it."""
    import torch

    if device == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(before: Any, after: Any) -> float:
    return after - before if isinstance(before, float) else before.elapsed_time(after) / 1e3
