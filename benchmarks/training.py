"""Time of a forward and backward pass: the first one in a new process, and later ones."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.availability import unavailable
from benchmarks.implementations import MODES, compile_with
from benchmarks.process import in_fresh_process
from benchmarks.row import Row, reached_by_thunder

GROUP = "training"
REPEATS = 3
FIRST_LIMIT = 1.0
STEADY_LIMIT = 1.03


COMPARED = ("eager", "compile", "thunder[]")


def measure(threads: int, implementations: list[str]) -> list[Row]:
    """Measure, and return the rows. Without a C++ compiler torch.compile uses its backend ``aot_eager``."""
    backend = "aot_eager" if unavailable(MODES) else "inductor"
    what = "Llama of 8 small layers, 1x64"
    if backend != "inductor":
        what += f" (torch.compile: {backend})"
    return [_first(threads, implementations, backend, what), _steady(threads, implementations, backend, what)]


def _first(threads: int, names: list[str], backend: str, what: str) -> Row:
    runs: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(REPEATS):
        for name, seconds in runs.items():
            seconds.append(in_fresh_process(first_step, threads=threads, name=name, backend=backend))
    values = {name: statistics.median(seconds) for name, seconds in runs.items()}
    goal, reached = f"<= {FIRST_LIMIT} s", reached_by_thunder(values, lambda value: value <= FIRST_LIMIT)
    return Row(GROUP, f"first forward and backward, {what}", "s", values, {}, goal, reached, {"runs": runs})


def _steady(threads: int, names: list[str], backend: str, what: str) -> Row:
    seconds = in_fresh_process(steady_step, threads=threads, names=names, backend=backend)
    values = {name: second * 1e3 for name, second in seconds.items()}
    goal = f"<= {STEADY_LIMIT} x eager"
    reached = reached_by_thunder(values, lambda value: value <= STEADY_LIMIT * values["eager"])
    return Row(GROUP, f"forward and backward, {what}", "ms", values, {}, goal, reached)


def first_step(name: str, backend: str, **sizes: int) -> float:
    """Seconds from the module to its gradients, in this process, after the imports."""
    import thunder  # noqa: F401
    from benchmarks import programs

    program, arguments = programs.small_llama_training(**sizes)
    start = time.perf_counter()
    compile_with(name, program, backend=backend)(*arguments).backward()
    return time.perf_counter() - start


def steady_step(names: list[str], backend: str, **sizes: int) -> dict[str, float]:
    """Median seconds of a forward and backward pass, by implementation, measured in alternation in this process.

    The implementations share the parameters. Each pass starts without gradients, as after ``zero_grad``.
    """
    import torch

    from benchmarks import programs
    from benchmarks.timing import interleaved_medians

    program, arguments = programs.small_llama_training(**sizes)
    parameters = list(program.parameters())

    def step(compiled: Callable[..., Any]) -> list[torch.Tensor | None]:
        for parameter in parameters:
            parameter.grad = None
        compiled(*arguments).backward()
        return [parameter.grad for parameter in parameters]

    calls = {name: functools.partial(step, compile_with(name, program, backend=backend)) for name in names}
    expected = calls["eager"]()
    for call in calls.values():
        torch.testing.assert_close(call(), expected)
    return interleaved_medians(calls)
