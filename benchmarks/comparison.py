"""A plan's processes: one after the other, or all of a round at once, where one runs at a time and they take turns."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.measurement import measure
from benchmarks.plan import Plan, Run, rounds
from benchmarks.process import ChildFailed, FreshProcess


def compare(plan: Plan, after: Callable[[list[Run]], None]) -> list[Run]:
    """All runs of the plan; ``after`` is called after each with those so far, so that nothing is lost."""
    done: list[Run] = []

    def keep(run: Run) -> None:
        done.append(run)
        after(done)

    with tempfile.TemporaryDirectory() as folder:
        fresh = (Path(folder, str(number)) for number in itertools.count())
        for workload in plan.workloads:
            for round_ in rounds(workload, plan, fresh):
                _run(round_, plan, keep)
    return done


def _run(round_: Iterator[tuple[Run, Path]], plan: Plan, keep: Callable[[Run], None]) -> None:
    """Each run up to where it gives way to others, if it does; then turns for all that wait."""
    with contextlib.ExitStack() as standing:
        waiting: deque[tuple[Run, FreshProcess]] = deque()
        for run, caches in round_:
            turns = plan.turns if run.timed and not run.reference else 0
            print(f"{run.name} ...", flush=True, file=sys.stderr)
            process = standing.enter_context(_process(run, caches, plan.threads, turns))
            if process.turn():
                waiting.append((run, process))
            else:
                keep(ended(run, process))
        while waiting:
            run, process = waiting.popleft()
            if process.turn():
                waiting.append((run, process))
            else:
                keep(ended(run, process))


def _process(run: Run, caches: Path, threads: int, turns: int) -> FreshProcess:
    return FreshProcess(
        measure,
        threads=threads,
        caches=caches,
        workload=run.workload.as_json(),
        implementation=run.implementation,
        kernels=run.kernels,
        first_only=not run.timed,
        turns=turns,
    )


def ended(run: Run, process: FreshProcess) -> Run:
    """The run with its result or its failure, which is told; the process runs to its end first."""
    try:
        result = process.result()
    except ChildFailed as failure:
        print(f"{run.name} failed\n{failure}", flush=True, file=sys.stderr)
        return replace(run, failure=str(failure))
    times = [f"{result['first']:.2f} s"] if result["first"] else []
    times += [f"{statistics.median(result['steps']) * 1e3:.2f} ms"] if result["steps"] else []
    print(f"{run.name}: {', then '.join(times)}", flush=True, file=sys.stderr)
    return replace(run, result=result)
