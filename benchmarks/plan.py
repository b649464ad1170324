"""What a comparison runs: all implementations on all workloads, in rounds, with empty and with filled caches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.implementations import compiles
from benchmarks.kernels import OTHER_KERNELS
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
        turns: in which the steps are timed, on a CPU: all processes of a round are there at once, one runs at a time,
            and each has that many turns. A machine that drifts is then as slow for one as for the other. 0: one
            process after the other.
    """

    workloads: Sequence[Workload]
    implementations: Sequence[str]
    rounds: int = 1
    cache: str = "cold"
    noise: int = 2
    threads: int = 1
    turns: int = 0


def rounds(workload: Workload, plan: Plan, fresh: Iterator[Path]) -> Iterator[Iterator[tuple[Run, Path]]]:
    """The rounds of a workload: runs, each with the folder of its caches."""
    kept: dict[str, Path] = {}
    for number in range(plan.rounds):
        yield _round(workload, plan, number, kept, fresh)
    if plan.noise:
        yield _noise(workload, plan, fresh)


def _round(
    workload: Workload, plan: Plan, number: int, kept: dict[str, Path], fresh: Iterator[Path]
) -> Iterator[tuple[Run, Path]]:
    for name in plan.implementations:
        run = Run(workload, name, number)
        if plan.cache == "cold" or not compiles(name):
            yield run, next(fresh)
            continue
        if plan.cache == "both" or name not in kept:
            kept[name] = next(fresh)
            # Its steps are not timed: the run that follows has them.
            yield replace(run, timed=False), kept[name]
        yield replace(run, cache="warm"), kept[name]


def _noise(workload: Workload, plan: Plan, fresh: Iterator[Path]) -> Iterator[tuple[Run, Path]]:
    if "eager" not in plan.implementations:
        yield Run(workload, "eager", reference=True), next(fresh)
    for kernels in list(OTHER_KERNELS[workload.device])[: plan.noise]:
        yield Run(workload, "eager", kernels=kernels, reference=True), next(fresh)
