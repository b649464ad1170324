"""Profiling processes, one after the other or compiling at the same time."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.comparison import Run, finish
from benchmarks.process import FreshProcess
from benchmarks.profiling.measurement import measure
from benchmarks.workload import Workload


def profile_all(
    workloads: Sequence[Workload],
    implementations: Sequence[str],
    *,
    threads: int,
    together: bool,
    folder: Path | None,
    after: Callable[[list[Run]], None],
) -> list[Run]:
    """Profile every workload with every implementation.

    Args:
        workloads, implementations: every pair is profiled.
        threads: number of CPU threads of each process.
        together: compile all implementations of a workload at the same time, and then measure one after the other.
        folder: folder for the files of kernels; None: no files.
        after: called after each run with all runs so far, so that an interruption loses nothing.
    """
    numbers = itertools.count(1)
    done: list[Run] = []
    for workload in workloads:
        runs = [(Run(workload, name), _stem(folder, next(numbers), name)) for name in implementations]
        with contextlib.ExitStack() as processes:
            started = ((run, processes.enter_context(_process(run, threads, together, stem))) for run, stem in runs)
            for run, process in _compiled(list(started)) if together else started:
                done.append(finish(run, process))
                after(done)
    return done


def _compiled(started: list[tuple[Run, FreshProcess]]) -> list[tuple[Run, FreshProcess]]:
    """Resume all processes, and wait until each has paused after compilation or failed."""
    for _, process in started:
        process.resume()
    for _, process in started:
        process.wait()
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
    """The path prefix of an implementation's files."""
    name = re.sub(r"\W+", "-", implementation).strip("-")
    return str(folder.resolve() / f"{number:02}-{name}") if folder else None
