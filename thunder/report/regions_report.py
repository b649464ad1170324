"""The report of the regions that executors fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from thunder_core.executors.executor import RegionCounts
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.admission import region_call
from thunder_core.runtime.transform import ExecutableProgram


@dataclass(frozen=True, slots=True)
class RegionReport(RegionCounts):
    """The regions that executors compiled for a program.

    Attributes:
        contents: a sentence for each different region that runs, in the order in which they run.
        behind: with ``compile="behind"`` what runs the regions at present, each with the number of regions.
    """

    contents: tuple[str, ...] = ()
    behind: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, program: ExecutableProgram) -> RegionReport | None:
        """The report; None without regions."""
        counts = program.regions
        if counts is None or not counts.regions:
            return None
        contents, behind = _contents(program.executed.values()), _behind(program.executed.values())
        return cls(**{one.name: getattr(counts, one.name) for one in fields(counts)}, contents=contents, behind=behind)

    def lines(self) -> list[str]:
        """The report as text."""
        different = self.known + self.read + self.compiled
        counts = f"{self.compiled} compiled, {self.read} read from disk, {self.known} known"
        behind = [f"  {count} regions: {state}" for state, count in self.behind.items()]
        contents = [f"  {content}" for content in self.contents]
        return [f"{self.regions} regions, {different} of them different: {counts}", *behind, *contents, *self.notes]


def _contents(programs: Iterable[Trace]) -> tuple[str, ...]:
    """A sentence for each different region; a region is a claimed op without an importable name that has parts."""
    equal: dict[Any, list[tuple[str, BoundSymbol]]] = {}
    for program in programs:
        for op in _regions(program.symbols):
            equal.setdefault(op.symbol.target, []).append((program.name, op))
    return tuple([_content(*regions[0], len(regions)) for regions in equal.values()])


def _behind(programs: Iterable[Trace]) -> dict[str, int]:
    """What runs the regions that other processes compile, each with the number of regions."""
    states = [_state(op) for program in programs for op in _regions(program.symbols)]
    return dict(Counter([state.partition(";")[0] for state in states if state]))


def _state(region: BoundSymbol) -> str:
    """What runs the region; empty if that never changes."""
    describe = getattr(region_call(region), "describe", None)
    return "" if describe is None else str(describe())


def _regions(ops: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """The regions among the ops; of a region of regions, such as a whole program, those inside."""
    for op in ops:
        if op.symbol.executor is not None and Tag.LOCAL in op.symbol.tags and op.parts:
            inner = list(_regions(op.parts))
            yield from inner or [op]


def _content(program: str, region: BoundSymbol, count: int) -> str:
    times = f", {count} times" if count > 1 else ""
    inputs, outputs = len(list(region.inputs())), len(list(region.outputs()))
    operations = Counter([part.symbol.name.removeprefix("torch.ops.") for part in region.parts])
    names = ", ".join([f"{count} x {name}" if count > 1 else name for name, count in operations.items()])
    state = _state(region)
    content = f"{region.symbol.name} in {program}{times}: from {inputs} to {outputs} tensors by {names}"
    return f"{content}; {state}" if state else content
