"""The memory of a program over its ops, by the lifetimes of the values that they define."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thunder_core.ir.lifetimes import Alive, moments
from thunder_core.ir.storage_sizes import bytes_of
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Phase


@dataclass(frozen=True)
class Holder:
    """A storage that is alive at the peak.

    Attributes:
        name: the first value on it.
        bytes: its size.
        phase: the program that defines it.
        index: the position of the op that defines it; -1 for an input of backward that forward does not compute.
    """

    name: str
    bytes: int
    phase: str
    index: int


@dataclass(frozen=True)
class MemoryTimeline:
    """The estimated memory of programs that run one after the other, without their inputs and workspaces of ops.

    Attributes:
        inputs: bytes of the inputs of the first program, such as parameters, which are alive all the time.
        bytes: for each program the bytes that are alive while each of its ops runs.
        peak: the largest of these.
        phase, index: the op that reaches the peak.
        holders: the storages that are alive there, the largest first.
    """

    inputs: int
    bytes: Mapping[str, tuple[int, ...]]
    peak: int
    phase: str
    index: int
    holders: tuple[Holder, ...]


def memory_timeline(programs: Mapping[Phase, Trace]) -> MemoryTimeline:
    """The timeline of executable programs in the order in which they run, as `thunder_core.ir.lifetimes.moments`."""
    points: dict[str, list[int]] = {phase.value: [] for phase in programs}
    peak, phase_of_peak, index_of_peak = 0, "", -1
    alive: tuple[Alive, ...] = ()
    for moment in moments({phase.value: trace for phase, trace in programs.items()}):
        if moment.op is None:
            continue
        points[moment.program].append(moment.bytes)
        if moment.bytes > peak:
            peak, phase_of_peak, index_of_peak = moment.bytes, moment.program, moment.index
            alive = moment.storages.largest()
    return MemoryTimeline(
        bytes_of(next(iter(programs.values())).inputs),
        {phase: tuple(totals) for phase, totals in points.items()},
        peak,
        phase_of_peak,
        index_of_peak,
        tuple([Holder(each.name, each.bytes, each.program, each.index) for each in alive]),
    )
