"""The cost of waiting for a compiler: time to the end of the first training step and of later ones, in new processes.

Their caches on disk are empty. With ``compile="behind"`` kernels are exchanged during the run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.process import in_fresh_process
from benchmarks.row import Row

GROUP = "waiting"
REPEATS = 3
STEPS = (1, 20, 100)
LIMIT = 1.1
"""Of the first step with PyTorch's own kernels, for which nothing but the program is compiled."""

IMPLEMENTATIONS: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "thunder[]": {"executors": []},
    "ahead": {"executors": ["inductor"], "compile": "ahead"},
    "behind": {"executors": ["inductor"], "compile": "behind"},
}


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    runs: dict[str, list[list[float]]] = {name: [] for name in IMPLEMENTATIONS}
    for _ in range(REPEATS):
        for name, results in runs.items():
            results.append(in_fresh_process(seconds_of_steps, threads=threads, name=name))
    rows = []
    for index, count in enumerate(STEPS):
        values = {name: statistics.median(run[index] for run in results) for name, results in runs.items()}
        what = f"{count} training steps, Llama of 8 small layers, 1x64" if count > 1 else "first training step"
        first = count == 1
        reached = values["behind"] <= LIMIT * values["thunder[]"] if first else None
        rows.append(Row(GROUP, what, "s", values, {}, f"behind <= {LIMIT} x thunder[]" if first else "", reached))
    return rows


def seconds_of_steps(name: str, steps: Sequence[int] = STEPS, **sizes: int) -> list[float]:
    """Seconds from the module to the end of each of these steps, in this process, after the imports."""
    import thunder
    from benchmarks import programs

    options = IMPLEMENTATIONS[name]
    program, arguments = programs.small_llama_training(**sizes)
    start = time.perf_counter()
    step = program if options is None else thunder.jit(program, **options)
    seconds = []
    for number in range(1, max(steps) + 1):
        program.zero_grad()
        step(*arguments).backward()
        if number in steps:
            seconds.append(time.perf_counter() - start)
    return seconds
