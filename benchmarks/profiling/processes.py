"""The processes that are profiled: one after the other, or with all compiling at the same time."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.comparison import ended
from benchmarks.plan import Run
from benchmarks.process import FreshProcess
from benchmarks.profiling.measurement import measure
from benchmarks.workload import Workload


def profiled(
    workloads: Sequence[Workload],
    implementations: Sequence[str],
    *,
    threads: int,
    together: bool,
    folder: Path | None,
    after: Callable[[list[Run]], None],
) -> list[Run]:
    """All pairs; ``after`` is called after each with those so far, so that nothing is lost.

    ``together``: all implementations of a workload compile at the same time, and are measured strictly one after the
    other when the last is ready. ``folder`` is where each leaves its files.
    """
    numbers = itertools.count(1)
    done: list[Run] = []
    for workload in workloads:
        runs = [(Run(workload, name), _stem(folder, next(numbers), name)) for name in implementations]
        with contextlib.ExitStack() as standing:
            started = ((run, standing.enter_context(_process(run, threads, together, stem))) for run, stem in runs)
            for run, process in _ready(list(started)) if together else started:
                done.append(ended(run, process))
                after(done)
    return done


def _ready(started: list[tuple[Run, FreshProcess]]) -> list[tuple[Run, FreshProcess]]:
    """The same, when each waits for its turn or has failed."""
    for _, process in started:
        process.go()
    for _, process in started:
        process.waits()
    return started


def _process(run: Run, threads: int, together: bool, stem: str | None) -> FreshProcess:
    print(f"{run.name} ...", flush=True, file=sys.stderr)
    return FreshProcess(
        measure,
        threads=threads,
        workload=run.workload.as_json(),
        implementation=run.implementation,
        together=together,
        stem=stem,
    )


def _stem(folder: Path | None, number: int, implementation: str) -> str | None:
    """How the paths of an implementation's files begin."""
    name = re.sub(r"\W+", "-", implementation).strip("-")
    return str(folder.resolve() / f"{number:02}-{name}") if folder else None
