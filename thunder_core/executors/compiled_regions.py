"""The result of compiling regions: functions or reasons of refusal, and counts for reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

RegionCall = Callable[..., Sequence[Any]]
"""Called with the inputs of a region, in order; returns its outputs, in a tuple or a list."""


def problem_of_calls(calls: Any, count: int) -> str:
    """The defect of an executor's result for ``count`` regions, as text; empty if there is none.

    A valid result is a sequence with a function, or a reason as text, for each region.
    """
    fits = isinstance(calls, Sequence) and len(calls) == count
    if fits and all(callable(call) or isinstance(call, str) for call in calls):
        return ""
    return "returned something else than a function, or a reason, for each region"


@dataclass(frozen=True, slots=True)
class RegionCounts:
    """Counts of the regions of a compilation, for the report.

    Attributes:
        regions: number of regions.
        known: number of distinct regions compiled in this process before.
        read: number of distinct regions read from disk.
        compiled: number of distinct regions compiled now, or refused.
        notes: problems with compiled regions on disk, as sentences without duplicates.
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
    """The result of `Executor.compile_regions`.

    Attributes:
        calls: for each region, in order, the compiled function; or, as text, the reason why the executor refuses it.
        counts: for the report.
    """

    calls: Sequence[RegionCall | str]
    counts: RegionCounts = RegionCounts()
