"""Turn the lines that fusion executors claimed into calls of compiled regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from thunder_core.executors.decision import Declined
from thunder_core.executors.executor import Executor, FusionExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tensors import written_inputs
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.compiled_regions import Compiled
from thunder_core.passes.fuse_together import Fusing
from thunder_core.passes.offers import Offers
from thunder_core.passes.region_program import RegionProgram
from thunder_core.passes.regions import Region, find_regions


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """A line on its way: what an executor said about it, or a call that is made already."""

    line: BoundSymbol
    assignment: Assignment | None


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A region that is to be compiled."""

    members: list[_Item]
    executor: FusionExecutor
    program: RegionProgram


@dataclass
class Fusion:
    """Finds regions among the lines of a trace and has them compiled.

    The lines of a region that its executor refuses are offered to the executors after it, which may fuse them in turn.

    Attributes:
        trace: where the lines are from.
        executors: in order.
        offers: asks them.
        unfused: names of values whose lines are offered to other executors only.
        replaced: what was assigned anew because a region was refused.
    """

    trace: Trace
    executors: Sequence[Executor]
    offers: Offers
    unfused: frozenset[str] = frozenset()
    replaced: dict[Assignment, Assignment] = field(default_factory=dict)
    _original: dict[Assignment, Assignment] = field(default_factory=dict)
    _count: int = 0

    def run(self, leaves: Sequence[Assignment], implement: Callable[[Assignment], BoundSymbol]) -> Fusing:
        """The lines in an order in which they can run, with calls of regions."""
        returned = {proxy.name for proxy in iterate_proxies(self.trace.output)}
        read = returned.union([proxy.name for leaf in leaves for proxy in leaf.bound.inputs()])
        items = [item for leaf in leaves for item in self._without_unfused(_Item(leaf.bound, leaf), read)]
        while True:
            labels = self._labels(items)
            if all(label is None for label in labels):
                return [item.line if item.assignment is None else implement(item.assignment) for item in items]
            lines = [item.line for item in items]
            readers = _readers(lines)
            found: list[list[_Item] | _Candidate] = []
            for region in find_regions(lines, labels):
                members = [items[index] for index in region.lines]
                found.append(members if region.label is None else self._candidate(region, members, readers, returned))
            wanted = [item for item in found if isinstance(item, _Candidate)]
            answers = iter((yield [(item.executor, item.program.trace) for item in wanted]))
            items = []
            for item in found:
                items += self._fused(item, next(answers)) if isinstance(item, _Candidate) else item

    def _without_unfused(self, item: _Item, read: set[str]) -> list[_Item]:
        """The line; offered to others if its executor would fuse it, and it may be written in place or is and is read
        by the name of its result.
        """
        assert item.assignment is not None
        fusion = self._fusion(item.assignment.executor)
        unfused = self.unfused if item.line.effects.pure else read
        if fusion is None or unfused.isdisjoint([proxy.name for proxy in item.line.outputs()]):
            return [item]
        others = self._refused([item], fusion.name, "it writes a part of memory in place")
        return [left for other in others for left in self._without_unfused(other, read)]

    def _labels(self, items: Sequence[_Item]) -> list[int | None]:
        known: dict[tuple[str, Context | None], int] = {}
        labels: list[int | None] = []
        for item in items:
            fusion = None if item.assignment is None else self._fusion(item.assignment.executor)
            key = None if fusion is None else (fusion.name, item.line.context)
            labels.append(None if key is None else known.setdefault(key, len(known)))
        return labels

    def _fusion(self, name: str) -> FusionExecutor | None:
        return next((own.fusion for own in self.executors if own.name == name), None)

    def _candidate(
        self, region: Region, members: list[_Item], readers: dict[str, list[int]], returned: set[str]
    ) -> _Candidate | list[_Item]:
        """The region with what must stay outside of it; or its lines, if there is nothing to compile."""
        first = members[0].assignment
        assert first is not None
        executor = self._fusion(first.executor)
        assert executor is not None
        own = set(region.lines)
        needed = {
            proxy.name
            for item in members
            for proxy in item.line.outputs()
            if proxy.name in returned or not own.issuperset(readers.get(proxy.name, ()))
        }
        program = RegionProgram.of([item.line for item in members], needed, self.trace)
        count = len(program.trace.symbols)
        if not count:  # views alone
            return _as_they_are(program.outside)
        if count < executor.smallest:
            return self._refused(members, executor.name, f"its region has {count} of {executor.smallest} lines")
        return _Candidate(members, executor, program)

    def _fused(self, region: _Candidate, answer: Compiled | str) -> list[_Item]:
        """The call of the compiled region; or its lines, offered to others."""
        name, trace = region.executor.name, region.program.trace
        if isinstance(answer, str):
            return self._refused(region.members, name, answer)
        call = _Item(self._call(name, answer, trace, region.members), None)
        return [call, *_as_they_are(region.program.outside)]

    def _refused(self, members: Sequence[_Item], executor: str, reason: str) -> list[_Item]:
        found = []
        for item in members:
            assert item.assignment is not None
            said = (*item.assignment.answers[:-1], Declined(executor, reason))
            again = self.offers.offer(item.line, self.offers.position(executor) + 1, said)
            original = self._original.get(item.assignment, item.assignment)
            self.replaced[original] = again
            for leaf in again.leaves():
                self._original[leaf] = original
                found.append(_Item(leaf.bound, leaf))
        return found

    def _call(
        self, executor: str, function: Callable[..., Any], region: Trace, members: Sequence[_Item]
    ) -> BoundSymbol:
        self._count += 1
        symbol = Symbol(f"{executor}_region_{self._count}", function, tags=frozenset({Tag.LOCAL}), executor=executor)
        first = members[0].line
        context = first.context
        modes = context or self.trace.context
        if modes.grad_enabled and any(isinstance(p, TensorProxy) and p.requires_grad for p in region.inputs):
            context = replace(modes, grad_enabled=False)  # compiled code writes to its results, which autograd refuses
        written = tuple([region.inputs[index].name for index in written_inputs(region)])
        effects = Effects(mutates=written) if written else PURE
        parts = region.symbols
        return BoundSymbol(symbol, region.inputs, {}, region.output, effects, context, first.location, parts)


def _as_they_are(lines: Sequence[BoundSymbol]) -> list[_Item]:
    return [_Item(line, None) for line in lines]


def _readers(lines: Sequence[BoundSymbol]) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        for proxy in line.inputs():
            readers.setdefault(proxy.name, []).append(index)
    return readers
