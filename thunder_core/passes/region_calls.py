"""Partition a trace into regions, and replace the ops of each by a call of the compiled region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from thunder_core.errors import ThunderError
from thunder_core.executors.decision import Declined
from thunder_core.executors.executor import (
    CompiledRegions,
    Executor,
    RegionCall,
    RegionCounts,
    declined_by_failing,
    problem_of_calls,
)
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol, free_values
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.profiler_ranges import union
from thunder_core.ir.proxy import TensorProxy, differentiable
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.admission import AdmittedRegion
from thunder_core.passes.assignment import Assignment, Offers
from thunder_core.passes.dependencies import dependencies, run_order
from thunder_core.tracing.sizes import active_symbols


@dataclass(frozen=True, slots=True)
class RegionProgram:
    """A region in the form in which it is compiled.

    Attributes:
        trace: functional except for ops that write to inputs. Its outputs share storage neither with its inputs nor
            with each other.
        outside: ops that take views of inputs or results of the region, which run after it.
    """

    trace: Trace
    outside: tuple[BoundSymbol, ...]

    @staticmethod
    def of(ops: Sequence[BoundSymbol], needed: set[str], ambient: Trace) -> RegionProgram:
        """The region of the ops ``ops``, whose results ``needed`` are read by other ops or returned."""
        definer = {proxy.name: index for index, op in enumerate(ops) for proxy in op.outputs()}
        given = {
            proxy.storage
            for op in ops
            for proxy in op.inputs()
            if isinstance(proxy, TensorProxy) and proxy.name not in definer
        }
        outside: set[int] = set()
        needed = set(needed)
        while True:
            views = _views(ops, needed, given)
            if not views:
                break
            index = max(views)
            outside.add(index)
            needed -= {proxy.name for proxy in ops[index].outputs()}
            needed |= {proxy.name for proxy in ops[index].inputs() if proxy.name in definer}
        return RegionProgram(_trace(ops, needed, ambient), tuple([ops[index] for index in sorted(outside)]))


def _views(ops: Sequence[BoundSymbol], needed: set[str], given: set[int]) -> list[int]:
    """Positions of ops whose results are needed and share storage with an input or with another needed result."""
    seen = set(given)
    positions = []
    for index, op in enumerate(ops):
        for proxy in op.outputs():
            if proxy.name not in needed or not isinstance(proxy, TensorProxy):
                continue
            if proxy.storage in seen:
                positions.append(index)
            seen.add(proxy.storage)
    return positions


def _trace(ops: Sequence[BoundSymbol], needed: set[str], ambient: Trace) -> Trace:
    live, needed_ops = set(needed), []
    for op in reversed(ops):
        if op.effects.mutates or not live.isdisjoint([proxy.name for proxy in op.outputs()]):
            needed_ops.append(op)
            live.update([proxy.name for proxy in op.inputs()])
    needed_ops.reverse()
    defined = {proxy.name: proxy for op in needed_ops for proxy in op.outputs()}
    output = tuple([proxy for name, proxy in defined.items() if name in needed])
    context = ambient.context if not needed_ops or needed_ops[0].context is None else needed_ops[0].context
    stage = Stage.EXECUTABLE if any(op.effects.mutates for op in needed_ops) else Stage.FUNCTIONAL
    return Trace("region", tuple(free_values(needed_ops).values()), tuple(needed_ops), output, stage, "fusion", context)


_Compiled = TypeVar("_Compiled")


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """An op with its assignment.

    Attributes:
        settled: whether the op stays outside of regions.
    """

    op: BoundSymbol
    assignment: Assignment | None
    settled: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _PendingRegion:
    """A region that is being compiled."""

    members: list[_Item]
    program: RegionProgram


@dataclass
class RegionCalls:
    """The ops of a trace while executors form regions of them.

    Ops of a region that an executor refuses are offered to the executors after it, which may form regions in turn.

    Attributes:
        trace: the trace of the ops.
        executors: in order of preference.
        offers: queries the executors.
        unfused: names of values whose ops are offered to executors that do not fuse only.
        replaced: new assignments of ops whose region was refused, by their earlier assignment.
    """

    trace: Trace
    executors: Sequence[Executor]
    offers: Offers
    unfused: frozenset[str] = frozenset()
    replaced: dict[Assignment, Assignment] = field(default_factory=dict)
    _original: dict[Assignment, tuple[Assignment, int]] = field(default_factory=dict)
    _items: list[_Item | _PendingRegion] = field(default_factory=list)
    _count: int = 0

    def start(self, leaves: Sequence[Assignment]) -> None:
        """Set the ops of the trace to the leaves of their assignments."""
        read = self._returned.union([proxy.name for leaf in leaves for proxy in leaf.bound.inputs()])
        self._items = [item for leaf in leaves for item in self._without_unfused(_Item(leaf.bound, leaf), read)]

    def ops(self, implement: Callable[[Assignment], BoundSymbol]) -> list[BoundSymbol]:
        """The ops in a valid order: calls of regions, and ``implement(assignment)`` for all others."""
        return [item.op if item.assignment is None else implement(item.assignment) for item in self._ops()]

    def has_offers(self, executor: Executor) -> bool:
        """Whether ``executor`` claimed ops that are not settled yet."""
        return any(_is_offered(item, executor) for item in self._ops())

    def partition(self, executor: Executor) -> list[Trace]:
        """The traces of the regions that ``executor`` forms. `put_calls` must follow with their calls."""
        items = self._ops()
        ops = [item.op for item in items]
        offered = [index for index, item in enumerate(items) if _is_offered(item, executor)]
        if not offered:
            return []
        order = self._order(executor, ops, offered)
        if isinstance(order, str):
            self._items = [one for item in items for one in self._declined(executor, item, order)]
            return []
        readers = _readers(ops)
        parts: list[_Item | _PendingRegion] = []
        for positions, is_region in order:
            members = [items[index] for index in positions]
            if is_region:
                parts += self._pending(positions, members, readers)
            else:
                parts += [replace(item, settled=item.settled or _is_offered(item, executor)) for item in members]
        self._items = parts
        return [item.program.trace for item in parts if isinstance(item, _PendingRegion)]

    def put_calls(self, executor: Executor, calls: Sequence[RegionCall | str]) -> None:
        """Replace the regions of the last `partition` by calls; offer the ops of refused regions to other executors."""
        remaining = iter(calls)
        items: list[_Item | _PendingRegion] = []
        for item in self._items:
            items += self._called(executor, item, next(remaining)) if isinstance(item, _PendingRegion) else [item]
        self._items = items

    @property
    def _returned(self) -> set[str]:
        return {proxy.name for proxy in iterate_proxies(self.trace.output)}

    def _ops(self) -> list[_Item]:
        items = [item for item in self._items if isinstance(item, _Item)]
        assert len(items) == len(self._items), "regions are being compiled"
        return items

    def _without_unfused(self, item: _Item, read: set[str]) -> list[_Item]:
        """The op, offered to other executors if its executor fuses but the op must stay outside of regions.

        That is the case if `Reinplace` may make it write in place, or if it writes in place and its result is read.
        """
        assert item.assignment is not None
        executor = self._fusing(item.assignment.executor)
        unfused = self.unfused if item.op.effects.pure else read
        if executor is None or unfused.isdisjoint([proxy.name for proxy in item.op.outputs()]):
            return [item]
        others = self._refused([item], executor, "it writes a part of a storage in place")
        return [left for other in others for left in self._without_unfused(other, read)]

    def _fusing(self, name: str) -> Executor | None:
        return next((own for own in self.executors if own.name == name and own.fuses), None)

    def _order(
        self, executor: Executor, ops: Sequence[BoundSymbol], offered: Sequence[int]
    ) -> list[tuple[tuple[int, ...], bool]] | str:
        """Groups of positions in a valid order, each with whether it is a region; or the reason to decline."""

        def partition() -> list[tuple[tuple[int, ...], bool]] | _Wrong:
            regions = executor.partition(self.trace.with_symbols(ops, executor.name), offered)
            groups = [tuple(region) for region in regions]
            problem = _problem(ops, offered, groups)
            if problem:
                return _Wrong(problem)
            order = run_order(dependencies(ops), groups)
            if order is None:
                return _Wrong("returned regions that wait for each other")
            distinct = set(groups)
            return [(positions, positions in distinct) for positions in order]

        first = ops[offered[0]]
        what = f"{len(offered)} ops, the first of which is {first.symbol.name},"
        return _result_or_reason(executor, "partition", what, first, partition)

    def _pending(
        self, positions: Sequence[int], members: list[_Item], readers: dict[str, list[int]]
    ) -> list[_Item | _PendingRegion]:
        """The pending region; or its ops, if they are all views and there is nothing to compile."""
        inside, returned = set(positions), self._returned
        needed = {
            proxy.name
            for item in members
            for proxy in item.op.outputs()
            if proxy.name in returned or not inside.issuperset(readers.get(proxy.name, ()))
        }
        program = RegionProgram.of([item.op for item in members], needed, self.trace)
        if not program.trace.symbols:  # views alone
            return [*_as_they_are(program.outside)]
        return [_PendingRegion(members, program)]

    def _called(self, executor: Executor, region: _PendingRegion, call: RegionCall | str) -> list[_Item]:
        """The call of the compiled region and the views outside; for a refused region its ops, offered to others."""
        if isinstance(call, str):
            return self._refused(region.members, executor, call)
        op = self._call(executor.name, call, region.program.trace, region.members[0].op)
        return [_Item(op, None), *_as_they_are(region.program.outside)]

    def _declined(self, executor: Executor, item: _Item, reason: str) -> list[_Item]:
        return self._refused([item], executor, reason) if _is_offered(item, executor) else [item]

    def _refused(self, members: Sequence[_Item], executor: Executor, reason: str) -> list[_Item]:
        items = []
        for item in members:
            assert item.assignment is not None
            declined = (*item.assignment.decisions[:-1], Declined(executor.name, reason))
            # The depth counts rewrites of refused ops too: an executor that refuses all regions and one that rewrites
            # would otherwise alternate forever.
            original, depth = self._original.get(item.assignment, (item.assignment, 0))
            again = self.offers.offer(item.op, self.offers.position(executor.name) + 1, declined, depth)
            self.replaced[original] = again
            for leaf in again.leaves():
                self._original[leaf] = (original, depth + 1)
                items.append(_Item(leaf.bound, leaf))
        return items

    def _call(self, executor: str, function: Callable[..., Any], region: Trace, first: BoundSymbol) -> BoundSymbol:
        self._count += 1
        function = AdmittedRegion(function, region)
        symbol = Symbol(f"{executor}_region_{self._count}", function, tags=frozenset({Tag.LOCAL}), executor=executor)
        context = first.context
        modes = context or self.trace.context
        if modes.grad_enabled and any(map(differentiable, region.inputs)):
            context = replace(modes, grad_enabled=False)  # compiled code writes to its results, which autograd rejects
        written = tuple([region.inputs[index].name for index in Aliases.of(region).written_inputs])
        effects = Effects(mutates=written) if written else PURE
        parts = region.symbols
        arguments = (*region.inputs, *active_symbols(region.sizes))
        location = first.location
        ranges = union([part.location.ranges for part in parts if part.location is not None])
        if location is not None and ranges != location.ranges:
            location = replace(location, ranges=ranges)
        return BoundSymbol(symbol, arguments, {}, region.output, effects, context, location, parts)


def take_regions(programs: Sequence[RegionCalls], executors: Sequence[Executor]) -> RegionCounts:
    """Let the executors form regions, one after the other. Regions of all programs are compiled together."""
    counts = RegionCounts()
    fusing = [executor for executor in executors if executor.fuses]
    while True:
        executor = next((one for one in fusing if any(program.has_offers(one) for program in programs)), None)
        if executor is None:
            return counts
        regions = [program.partition(executor) for program in programs]
        compiled = _compiled(executor, [region for single in regions for region in single])
        counts += compiled.counts
        calls = iter(compiled.calls)
        for program, single in zip(programs, regions, strict=True):
            program.put_calls(executor, [next(calls) for _ in single])


def _compiled(executor: Executor, regions: Sequence[Trace]) -> CompiledRegions:
    """The regions as compiled by the executor; if that fails, all are refused."""
    if not regions:
        return CompiledRegions(())

    def compiled() -> CompiledRegions | _Wrong:
        result = executor.compile_regions(regions)
        if not isinstance(result, CompiledRegions):
            return _Wrong(f"returned {type(result).__name__}, not CompiledRegions")
        problem = problem_of_calls(result.calls, len(regions))
        if not problem and not isinstance(result.counts, RegionCounts):
            problem = f"returned counts that are {type(result.counts).__name__}, not RegionCounts"
        return _Wrong(problem) if problem else result

    first = regions[0].symbols[0]
    what = f"{len(regions)} regions, the first of which begins with {first.symbol.name},"
    result = _result_or_reason(executor, "compile_regions", what, first, compiled)
    return CompiledRegions([result] * len(regions)) if isinstance(result, str) else result


@dataclass(frozen=True)
class _Wrong:
    """The defect of an executor's result, as text."""

    problem: str


def _result_or_reason(
    executor: Executor, method: str, what: str, first: BoundSymbol, call: Callable[[], _Compiled | _Wrong]
) -> _Compiled | str:
    """The result of ``call``; if ``method`` of the executor fails or its result is invalid, the reason to decline.

    Args:
        what: description of the ops or regions that the executor was queried about.
        first: the first of these ops, for the source location.
    """
    problem: Exception | str
    try:
        result = call()
        if not isinstance(result, _Wrong):
            return result
        problem = result.problem
    except ThunderError:
        raise
    except Exception as error:  # noqa: BLE001 - becomes the reason
        problem = error
    return declined_by_failing(executor.name, what, method, first.location, problem)


def _problem(ops: Sequence[BoundSymbol], offered: Sequence[int], groups: Sequence[Sequence[int]]) -> str:
    """The defect of the regions that an executor returned, except in their order; empty if there is none."""
    left = set(offered)
    for group in groups:
        if not group or list(group) != sorted(set(group)):
            return "returned a region that is not a sorted sequence of positions"
        if not left.issuperset(group):
            return "returned a region of ops that were not offered, or are in another region"
        left.difference_update(group)
        if len({ops[index].context for index in group}) > 1:
            return "returned a region of ops with different contexts"
    return ""


def _is_offered(item: _Item, executor: Executor) -> bool:
    return not item.settled and item.assignment is not None and item.assignment.executor == executor.name


def _as_they_are(ops: Sequence[BoundSymbol]) -> list[_Item]:
    return [_Item(op, None) for op in ops]


def _readers(ops: Sequence[BoundSymbol]) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for index, op in enumerate(ops):
        for proxy in op.inputs():
            readers.setdefault(proxy.name, []).append(index)
    return readers
