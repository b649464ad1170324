"""Comparison of implementations on workloads: its runs, their caches, and the processes that execute them."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.implementations import WITH_GRAPHS, compiles
from benchmarks.losses import OTHER_KERNELS
from benchmarks.measurement import measure
from benchmarks.process import ChildFailed, FreshProcess
from benchmarks.workload import Workload

CACHES = ("cold", "warm", "both")


@dataclass(frozen=True)
class Run:
    """One process.

    Attributes:
        workload, implementation: see `Workload` and `benchmarks.implementations`.
        round: counted from 0.
        cache: ``cold`` or ``warm``, the state of the caches on disk before the first step.
        kernels: a key of `OTHER_KERNELS` if eager runs with other kernels.
        reference: whether only the losses of the run are used.
        timed: whether the times of its steps are used; else only that of its first step.
        result: the return value of `measure`; None if the run failed.
        failure: the last lines of the process's output, if it failed.
    """

    workload: Workload
    implementation: str
    round: int = 0
    cache: str = "cold"
    kernels: str | None = None
    reference: bool = False
    timed: bool = True
    result: dict[str, Any] | None = None
    failure: str = ""

    @property
    def name(self) -> str:
        """The run in one line, for progress messages."""
        implementation = self.implementation + (f" ({self.kernels})" if self.kernels else "")
        return f"{self.workload.task} {self.workload.label}: {implementation}, round {self.round + 1}, {self.cache}"

    @property
    def key(self) -> Hashable:
        """Equal for two runs of the same measurement."""
        return repr(replace(self, result=None, failure=""))

    def as_json(self) -> dict[str, Any]:
        """The run as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Run:
        """The run of plain data. Raises KeyError or TypeError for other data."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known} | {
            "workload": Workload(**data["workload"])
        })  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The runs of a comparison.

    Attributes:
        workloads, implementations: every pair is run.
        rounds: number of rounds. A round runs each implementation once.
        cache: one of `CACHES`. With ``both``, the times of steps are those of the run with warm caches.
        noise: number of eager runs with other kernels for each workload. With 0, losses are compared only if eager is
            among the implementations.
        threads: number of CPU threads of each process.
        turns: number of timed turns of each process, on a CPU. All processes of a round are alive at once and take
            turns, so that changes in the machine's speed affect all of them alike. 0: one process after the other.
        side_by_side: number of processes that fill caches at once, before everything else; only with ``warm``. 1: each
            cache is filled before its run, and the first step that fills it is a result.
        limit: seconds that a process may run; None: any time.
        deadline: the time of `time.monotonic` at which the comparison ends, also within a run; None: it has none.
    """

    workloads: Sequence[Workload]
    implementations: Sequence[str]
    rounds: int = 1
    cache: str = "cold"
    noise: int = 2
    threads: int = 1
    turns: int = 0
    side_by_side: int = 1
    limit: float | None = None
    deadline: float | None = None

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline


def compare(plan: Plan, after: Callable[[list[Run]], None], finished: Iterable[Run] = ()) -> list[Run]:
    """Execute the plan, and return its runs.

    Args:
        plan: what is run, except for what `omitted` names. Runs that the deadline ends, or that would start after it,
            are not among the results.
        after: called after each run with all runs so far, so that they survive interruptions.
        finished: runs of earlier comparisons, which are among the results. They are not run again, except together with
            runs that have to be side by side, or that fill their caches.
    """
    done = list(finished)

    def add(run: Run) -> None:
        done.append(run)
        after(done)

    with tempfile.TemporaryDirectory() as folder:
        empty_folders = (Path(folder, str(number)) for number in itertools.count())
        filled: dict[Hashable, Path] = {}
        if plan.side_by_side > 1:
            filled |= _fill_side_by_side(plan, missing(plan, done), empty_folders)
        for workload in plan.workloads:
            again = _unfinished(workload, plan, {run.key for run in done})
            done[:] = [run for run in done if run.key not in again]
            for round_ in _rounds(workload, plan, empty_folders, filled):
                _execute(((run, caches) for run, caches in round_ if run.key in again), plan, add)
                if plan.late:
                    return done
    return done


def unsuited(workload: Workload, implementation: str) -> str:
    """The reason why a pair of a plan is not run; empty if it is."""
    if workload.task == "generation" and workload.kv_cache == "dynamic" and implementation in WITH_GRAPHS:
        return "CUDA graphs need a static cache"
    return ""


def omitted(plan: Plan) -> list[str]:
    """A line for each pair of the plan that is not run."""
    pairs = itertools.product(plan.workloads, plan.implementations)
    return [
        f"{workload.task} {workload.label}: {name} is not run: {reason}"
        for workload, name in pairs
        if (reason := unsuited(workload, name))
    ]


def missing(plan: Plan, runs: Iterable[Run]) -> list[Run]:
    """The runs of the plan that are not among ``runs``."""
    done = {run.key for run in runs}
    return [run for workload in plan.workloads for run in _planned(workload, plan) if run.key not in done]


def _planned(workload: Workload, plan: Plan) -> list[Run]:
    names = plan.implementations if plan.side_by_side > 1 else ()
    filled = {_caches_of(workload, name): Path() for name in names}
    return [run for round_ in _rounds(workload, plan, itertools.repeat(Path()), filled) for run, _ in round_]


def _unfinished(workload: Workload, plan: Plan, done: Collection[Hashable]) -> set[Hashable]:
    """The keys of the runs to execute: those that are not done, and those that belong to them."""

    def together(run: Run) -> Hashable:
        # The processes of a round take turns; filled caches are those of earlier runs of an implementation.
        by_turns = run.round if plan.turns and not run.reference else run.key
        return by_turns if plan.cache == "cold" else plan.turns or (run.implementation, run.reference)

    runs = _planned(workload, plan)
    incomplete = {together(run) for run in runs if run.key not in done}
    return {run.key for run in runs if together(run) in incomplete}


def _caches_of(workload: Workload, implementation: str) -> Hashable:
    """Equal for the runs that share filled caches."""
    return repr((workload, implementation))


def _fill_side_by_side(plan: Plan, runs: Iterable[Run], empty_folders: Iterator[Path]) -> dict[Hashable, Path]:
    """Fill the caches of those runs that read filled ones, several at once. Their first steps are no results."""
    reading = {_caches_of(run.workload, run.implementation): run for run in runs if run.cache == "warm"}
    filled = {key: next(empty_folders) for key in reading}

    def fill(key: Hashable) -> None:
        if not plan.late:
            run = replace(reading[key], cache="cold", timed=False)
            with _process(run, filled[key], plan, turns=0) as process:
                finish(run, process)

    with ThreadPoolExecutor(plan.side_by_side) as pool:
        deque(pool.map(fill, reading), maxlen=0)
    return filled


def _rounds(
    workload: Workload, plan: Plan, empty_folders: Iterator[Path], filled: dict[Hashable, Path]
) -> Iterator[Iterator[tuple[Run, Path]]]:
    """The rounds of a workload. Each yields runs with the folders of their caches."""
    for number in range(plan.rounds):
        yield _round(workload, plan, number, filled, empty_folders)
    if plan.noise:
        yield _noise(workload, plan, empty_folders)


def _round(
    workload: Workload, plan: Plan, number: int, filled: dict[Hashable, Path], empty_folders: Iterator[Path]
) -> Iterator[tuple[Run, Path]]:
    for name in plan.implementations:
        if unsuited(workload, name):
            continue
        run = Run(workload, name, number)
        if plan.cache == "cold" or not compiles(name):
            yield run, next(empty_folders)
            continue
        key = _caches_of(workload, name)
        if plan.cache == "both" or key not in filled:
            filled[key] = next(empty_folders)
            # This run only fills the caches; the steps of the next one are timed.
            yield replace(run, timed=False), filled[key]
        yield replace(run, cache="warm"), filled[key]


def _noise(workload: Workload, plan: Plan, empty_folders: Iterator[Path]) -> Iterator[tuple[Run, Path]]:
    if "eager" not in plan.implementations:
        yield Run(workload, "eager", reference=True), next(empty_folders)
    others = list(OTHER_KERNELS[workload.device])
    if not workload.sequence:
        others.reverse()  # the last ones have other convolutions
    for kernels in others[: plan.noise]:
        yield Run(workload, "eager", kernels=kernels, reference=True), next(empty_folders)


def _execute(round_: Iterable[tuple[Run, Path]], plan: Plan, add: Callable[[Run], None]) -> None:
    """Start each run up to its first turn, or to its end if it has no turns; then let the waiting ones take turns."""
    with contextlib.ExitStack() as processes:
        waiting: deque[tuple[Run, FreshProcess]] = deque()

        def resume(run: Run, process: FreshProcess) -> None:
            if process.run_turn():
                waiting.append((run, process))
                return
            ended = finish(run, process)
            # What the deadline has ended is not a failure: it is run again.
            if not (plan.late and process.timed_out):
                add(ended)

        for run, caches in round_:
            if plan.late:
                return
            turns = plan.turns if run.timed and not run.reference else 0
            print(f"{run.name} ...", flush=True, file=sys.stderr)
            resume(run, processes.enter_context(_process(run, caches, plan, turns)))
        while waiting and not plan.late:
            resume(*waiting.popleft())


def _process(run: Run, caches: Path, plan: Plan, turns: int) -> FreshProcess:
    return FreshProcess(
        measure,
        threads=plan.threads,
        caches=caches,
        limit=_seconds_left(plan),
        workload=run.workload.as_json(),
        implementation=run.implementation,
        kernels=run.kernels,
        first_only=not run.timed,
        turns=turns,
    )


def _seconds_left(plan: Plan) -> float | None:
    """The seconds that a process which starts now may run."""
    limits = [plan.limit] if plan.limit is not None else []
    limits += [plan.deadline - time.monotonic()] if plan.deadline is not None else []
    return max(min(limits), 0.001) if limits else None


def finish(run: Run, process: FreshProcess) -> Run:
    """Let the process run to its end, print a summary, and return the run with its result or failure."""
    try:
        result = process.result()
    except ChildFailed as failure:
        print(f"{run.name} failed\n{failure}", flush=True, file=sys.stderr)
        return replace(run, failure=str(failure))
    times = [f"{result['first']:.2f} s"] if result["first"] else []
    times += [f"{statistics.median(result['steps']) * 1e3:.2f} ms"] if result["steps"] else []
    print(f"{run.name}: {', then '.join(times)}", flush=True, file=sys.stderr)
    return replace(run, result=result)
