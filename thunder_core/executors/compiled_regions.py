"""What an executor compiled the regions to that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

RegionCall = Callable[..., Sequence[Any]]
"""Called with the inputs of a region, in order; returns its outputs, in a tuple or a list."""


def problem_of_calls(calls: Any, count: int) -> str:
    """What is wrong with what an executor returned for ``count`` regions.

    Empty where it is a sequence with a function, or a reason as text, for each of them.
    """
    fits = isinstance(calls, Sequence) and len(calls) == count
    if fits and all(callable(call) or isinstance(call, str) for call in calls):
        return ""
    return "returned something else than a function, or a reason, for each region"


@dataclass(frozen=True, slots=True)
class RegionCounts:
    """For the report: what became of the regions of a compilation.

    Attributes:
        regions: how many there are.
        known: different ones that had been compiled in this process before.
        read: different ones that were read from disk.
        compiled: different ones that were compiled now, or refused.
        notes: what went wrong with compiled regions on disk, each sentence once.
    """

    regions: int = 0
    known: int = 0
    read: int = 0
    compiled: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: RegionCounts) -> RegionCounts:
        return RegionCounts(
            self.regions + other.regions,
            self.known + other.known,
            self.read + other.read,
            self.compiled + other.compiled,
            tuple(dict.fromkeys([*self.notes, *other.notes])),
        )


@dataclass(frozen=True, slots=True)
class CompiledRegions:
    """What `Executor.compile_regions` returns.

    Attributes:
        calls: for each region, in order, what runs in its place; or the reason, as text, for which the executor refuses
            it.
        counts: for the report.
    """

    calls: Sequence[RegionCall | str]
    counts: RegionCounts = RegionCounts()
