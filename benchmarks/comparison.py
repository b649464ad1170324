"""All implementations on all workloads: each run in its own process, in rounds, with empty and with filled caches."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.implementations import compiles
from benchmarks.kernels import OTHER_KERNELS
from benchmarks.measurement import measure
from benchmarks.process import ChildFailed, in_fresh_process
from benchmarks.workload import Workload

CACHES = ("cold", "warm", "both")


@dataclass(frozen=True)
class Run:
    """One process.

    Attributes:
        workload: what ran.
        implementation: of it.
        round: counted from 0.
        cache: ``cold`` or ``warm``: what the first step found.
        kernels: those of a run that samples the noise.
        reference: it ran for the comparison of losses alone.
        timed: the times of its steps count; else those of its first step alone.
        result: what `measure` returned; None if it failed.
        failure: the end of what the process wrote.
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
        """What is shown while it runs."""
        who = self.implementation + (f" ({self.kernels})" if self.kernels else "")
        return f"{self.workload.task} {self.workload.label}: {who}, round {self.round + 1}, {self.cache}"

    def as_json(self) -> dict[str, Any]:
        """The run as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """What is to run.

    Attributes:
        workloads, implementations: all pairs of them.
        rounds: how often, one implementation after the other in each round.
        cache: one of `CACHES`. ``both`` takes the steps from the run with filled caches.
        noise: number of eager runs with other kernels, for each workload; 0 leaves the losses alone if eager is not
            among the implementations.
        threads: of each process.
    """

    workloads: Sequence[Workload]
    implementations: Sequence[str]
    rounds: int = 1
    cache: str = "cold"
    noise: int = 2
    threads: int = 1


def compare(plan: Plan, after: Callable[[list[Run]], None]) -> list[Run]:
    """All runs of the plan; ``after`` is called after each with those so far, so that nothing is lost."""
    done: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        fresh = (Path(folder, str(number)) for number in itertools.count())
        for workload in plan.workloads:
            for run, caches in _planned(workload, plan, fresh):
                done.append(_done(run, caches, plan.threads))
                after(done)
    return done


def _planned(workload: Workload, plan: Plan, fresh: Iterator[Path]) -> Iterator[tuple[Run, Path]]:
    """The runs of a workload, each with the folder of its caches."""
    kept: dict[str, Path] = {}
    for round_ in range(plan.rounds):
        for name in plan.implementations:
            run = Run(workload, name, round_)
            if plan.cache == "cold" or not compiles(name):
                yield run, next(fresh)
                continue
            if plan.cache == "both" or name not in kept:
                kept[name] = next(fresh)
                # Its steps are not timed: the run that follows has them.
                yield replace(run, timed=False), kept[name]
            yield replace(run, cache="warm"), kept[name]
    if plan.noise:
        if "eager" not in plan.implementations:
            yield Run(workload, "eager", reference=True), next(fresh)
        for kernels in list(OTHER_KERNELS[workload.device])[: plan.noise]:
            yield Run(workload, "eager", kernels=kernels, reference=True), next(fresh)


def _done(run: Run, caches: Path, threads: int) -> Run:
    print(f"{run.name} ...", end="", flush=True, file=sys.stderr)
    arguments = {"workload": run.workload.as_json(), "implementation": run.implementation, "kernels": run.kernels}
    try:
        result = in_fresh_process(measure, threads=threads, caches=caches, first_only=not run.timed, **arguments)
    except ChildFailed as failure:
        print(f" failed\n{failure}", flush=True, file=sys.stderr)
        return replace(run, failure=str(failure))
    steps = sorted(result["steps"])
    later = f", then {steps[len(steps) // 2] * 1e3:.2f} ms" if steps else ""
    print(f" {result['first']:.2f} s{later}", flush=True, file=sys.stderr)
    return replace(run, result=result)
