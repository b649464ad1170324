"""Calls of regions in the place of the lines that an executor runs together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from thunder_core.errors import ThunderError
from thunder_core.executors.compiled_regions import CompiledRegions, RegionCall, RegionCounts, problem_of_calls
from thunder_core.executors.decision import Declined
from thunder_core.executors.executor import Executor, declined_by_failing
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.assignment import Assignment, Offers
from thunder_core.passes.dependencies import dependencies, run_order
from thunder_core.tracing.sizes import active_symbols


@dataclass(frozen=True, slots=True)
class RegionProgram:
    """A region that can be compiled.

    Attributes:
        trace: functional but for lines that write into inputs. Its outputs share memory neither with its inputs nor
            with each other.
        outside: views of inputs or results of the region, taken after it.
    """

    trace: Trace
    outside: tuple[BoundSymbol, ...]

    @staticmethod
    def of(lines: Sequence[BoundSymbol], needed: set[str], ambient: Trace) -> RegionProgram:
        """The program of ``lines``, of which others read the values ``needed``. Views among these stay outside."""
        definer = {proxy.name: index for index, line in enumerate(lines) for proxy in line.outputs()}
        given = {
            proxy.storage
            for line in lines
            for proxy in line.inputs()
            if isinstance(proxy, TensorProxy) and proxy.name not in definer
        }
        outside: set[int] = set()
        needed = set(needed)
        while True:
            views = _views(lines, needed, definer, given)
            if not views:
                break
            index = max(views)
            outside.add(index)
            needed -= {proxy.name for proxy in lines[index].outputs()}
            needed |= {proxy.name for proxy in lines[index].inputs() if proxy.name in definer}
        return RegionProgram(_trace(lines, needed, ambient), tuple([lines[index] for index in sorted(outside)]))


def _views(lines: Sequence[BoundSymbol], needed: set[str], definer: dict[str, int], given: set[int]) -> list[int]:
    """Lines whose results are needed and share memory with an input or with another needed result."""
    seen = set(given)
    found = []
    for index, line in enumerate(lines):
        for proxy in line.outputs():
            if proxy.name not in needed or not isinstance(proxy, TensorProxy):
                continue
            if proxy.storage in seen:
                found.append(index)
            seen.add(proxy.storage)
    return found


def _trace(lines: Sequence[BoundSymbol], needed: set[str], ambient: Trace) -> Trace:
    live, kept = set(needed), []
    for line in reversed(lines):
        if line.effects.mutates or not live.isdisjoint([proxy.name for proxy in line.outputs()]):
            kept.append(line)
            live.update([proxy.name for proxy in line.inputs()])
    kept.reverse()
    made = {proxy.name: proxy for line in kept for proxy in line.outputs()}
    inputs = {proxy.name: proxy for line in kept for proxy in line.inputs() if proxy.name not in made}
    output = tuple([proxy for name, proxy in made.items() if name in needed])
    context = ambient.context if not kept or kept[0].context is None else kept[0].context
    stage = Stage.EXECUTABLE if any(line.effects.mutates for line in kept) else Stage.FUNCTIONAL
    return Trace("region", tuple(inputs.values()), tuple(kept), output, stage, "fusion", context)


_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, eq=False)
class _Item:
    """A line, with who runs it.

    Attributes:
        settled: whether the line stays by itself, whoever runs it.
    """

    line: BoundSymbol
    assignment: Assignment | None
    settled: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A region that is to be compiled."""

    members: list[_Item]
    program: RegionProgram


@dataclass
class RegionCalls:
    """The lines of a trace while executors take regions of them.

    Lines of a region that an executor refuses are offered to the executors after it, which may take regions in turn.

    Attributes:
        trace: where the lines are from.
        executors: in order.
        offers: queries them.
        unfused: names of values whose lines are offered to other executors only.
        replaced: what was assigned anew because a region was refused.
    """

    trace: Trace
    executors: Sequence[Executor]
    offers: Offers
    unfused: frozenset[str] = frozenset()
    replaced: dict[Assignment, Assignment] = field(default_factory=dict)
    _original: dict[Assignment, tuple[Assignment, int]] = field(default_factory=dict)
    _items: list[_Item | _Candidate] = field(default_factory=list)
    _count: int = 0

    def start(self, leaves: Sequence[Assignment]) -> None:
        """Take the lines of the trace, as they were assigned."""
        read = self._returned.union([proxy.name for leaf in leaves for proxy in leaf.bound.inputs()])
        self._items = [item for leaf in leaves for item in self._without_unfused(_Item(leaf.bound, leaf), read)]

    def lines(self, implement: Callable[[Assignment], BoundSymbol]) -> list[BoundSymbol]:
        """The lines in an order in which they can run, with calls of regions; others as their executors run them."""
        return [item.line if item.assignment is None else implement(item.assignment) for item in self._lines()]

    def has_offers(self, executor: Executor) -> bool:
        """Whether there are lines that ``executor`` claimed and that may be in regions."""
        return any(_is_offered(item, executor) for item in self._lines())

    def partition(self, executor: Executor) -> list[Trace]:
        """The programs of the regions that ``executor`` takes. `put_calls` is then given what became of
        them.
        """
        items = self._lines()
        lines = [item.line for item in items]
        offered = [index for index, item in enumerate(items) if _is_offered(item, executor)]
        if not offered:
            return []
        order = self._order(executor, lines, offered)
        if isinstance(order, str):
            self._items = [one for item in items for one in self._declined(executor, item, order)]
            return []
        readers = _readers(lines)
        found: list[_Item | _Candidate] = []
        for positions, is_region in order:
            members = [items[index] for index in positions]
            if is_region:
                found += self._candidate(positions, members, readers)
            else:
                found += [replace(item, settled=item.settled or _is_offered(item, executor)) for item in members]
        self._items = found
        return [item.program.trace for item in found if isinstance(item, _Candidate)]

    def put_calls(self, executor: Executor, calls: Sequence[RegionCall | str]) -> None:
        """Put calls in the place of the regions of the last `partition`; offer lines of those refused to others."""
        remaining = iter(calls)
        items: list[_Item | _Candidate] = []
        for item in self._items:
            items += self._called(executor, item, next(remaining)) if isinstance(item, _Candidate) else [item]
        self._items = items

    @property
    def _returned(self) -> set[str]:
        return {proxy.name for proxy in iterate_proxies(self.trace.output)}

    def _lines(self) -> list[_Item]:
        items = [item for item in self._items if isinstance(item, _Item)]
        assert len(items) == len(self._items), "regions are being compiled"
        return items

    def _without_unfused(self, item: _Item, read: set[str]) -> list[_Item]:
        """The line; offered to others if its executor would fuse it, and it may be written in place or is and is read
        by the name of its result.
        """
        assert item.assignment is not None
        executor = self._fusing(item.assignment.executor)
        unfused = self.unfused if item.line.effects.pure else read
        if executor is None or unfused.isdisjoint([proxy.name for proxy in item.line.outputs()]):
            return [item]
        others = self._refused([item], executor, "it writes a part of memory in place")
        return [left for other in others for left in self._without_unfused(other, read)]

    def _fusing(self, name: str) -> Executor | None:
        return next((own for own in self.executors if own.name == name and own.fuses), None)

    def _order(
        self, executor: Executor, lines: Sequence[BoundSymbol], offered: Sequence[int]
    ) -> list[tuple[tuple[int, ...], bool]] | str:
        """Groups of positions in an order in which they can run, and whether each is a region; or what is wrong."""

        def partition() -> list[tuple[tuple[int, ...], bool]] | _Wrong:
            regions = executor.partition(self.trace.with_symbols(lines, executor.name), offered)
            groups = [tuple(region) for region in regions]
            problem = _problem(lines, offered, groups)
            if problem:
                return _Wrong(problem)
            order = run_order(dependencies(lines), groups)
            if order is None:
                return _Wrong("returned regions that wait for each other")
            own = set(groups)
            return [(positions, positions in own) for positions in order]

        first = lines[offered[0]]
        what = f"{len(offered)} lines, the first of which is {first.symbol.name},"
        return _answer(executor, "partition", what, first, partition)

    def _candidate(
        self, positions: Sequence[int], members: list[_Item], readers: dict[str, list[int]]
    ) -> list[_Item | _Candidate]:
        """The region with what must stay outside of it; or its lines, if there is nothing to compile."""
        own, returned = set(positions), self._returned
        needed = {
            proxy.name
            for item in members
            for proxy in item.line.outputs()
            if proxy.name in returned or not own.issuperset(readers.get(proxy.name, ()))
        }
        program = RegionProgram.of([item.line for item in members], needed, self.trace)
        if not program.trace.symbols:  # views alone
            return [*_as_they_are(program.outside)]
        return [_Candidate(members, program)]

    def _called(self, executor: Executor, region: _Candidate, call: RegionCall | str) -> list[_Item]:
        """The call of the compiled region; or its lines, offered to others."""
        if isinstance(call, str):
            return self._refused(region.members, executor, call)
        line = self._call(executor.name, call, region.program.trace, region.members[0].line)
        return [_Item(line, None), *_as_they_are(region.program.outside)]

    def _declined(self, executor: Executor, item: _Item, reason: str) -> list[_Item]:
        return self._refused([item], executor, reason) if _is_offered(item, executor) else [item]

    def _refused(self, members: Sequence[_Item], executor: Executor, reason: str) -> list[_Item]:
        found = []
        for item in members:
            assert item.assignment is not None
            said = (*item.assignment.answers[:-1], Declined(executor.name, reason))
            # Rewrites of what was refused count, else an executor that refuses all and one that rewrites would go on.
            original, depth = self._original.get(item.assignment, (item.assignment, 0))
            again = self.offers.offer(item.line, self.offers.position(executor.name) + 1, said, depth)
            self.replaced[original] = again
            for leaf in again.leaves():
                self._original[leaf] = (original, depth + 1)
                found.append(_Item(leaf.bound, leaf))
        return found

    def _call(self, executor: str, function: Callable[..., Any], region: Trace, first: BoundSymbol) -> BoundSymbol:
        self._count += 1
        symbol = Symbol(f"{executor}_region_{self._count}", function, tags=frozenset({Tag.LOCAL}), executor=executor)
        context = first.context
        modes = context or self.trace.context
        if modes.grad_enabled and any(isinstance(p, TensorProxy) and p.requires_grad for p in region.inputs):
            context = replace(modes, grad_enabled=False)  # compiled code writes to its results, which autograd refuses
        written = tuple([region.inputs[index].name for index in Aliases.of(region).written_inputs])
        effects = Effects(mutates=written) if written else PURE
        parts = region.symbols
        arguments = (*region.inputs, *active_symbols(region.sizes))
        return BoundSymbol(symbol, arguments, {}, region.output, effects, context, first.location, parts)


def take_regions(programs: Sequence[RegionCalls], executors: Sequence[Executor]) -> RegionCounts:
    """Have executors take regions, each in turn. Those of all programs are compiled together."""
    counts = RegionCounts()
    fusing = [executor for executor in executors if executor.fuses]
    while True:
        executor = next((one for one in fusing if any(program.has_offers(one) for program in programs)), None)
        if executor is None:
            return counts
        regions = [program.partition(executor) for program in programs]
        compiled = _compiled(executor, [region for own in regions for region in own])
        counts += compiled.counts
        calls = iter(compiled.calls)
        for program, own in zip(programs, regions, strict=True):
            program.put_calls(executor, [next(calls) for _ in own])


def _compiled(executor: Executor, regions: Sequence[Trace]) -> CompiledRegions:
    """What the executor compiled the regions to; where it fails it refuses them all."""
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
    result = _answer(executor, "compile_regions", what, first, compiled)
    return CompiledRegions([result] * len(regions)) if isinstance(result, str) else result


@dataclass(frozen=True)
class _Wrong:
    """What is wrong with what an executor returned."""

    problem: str


def _answer(
    executor: Executor, method: str, what: str, first: BoundSymbol, call: Callable[[], _Answer | _Wrong]
) -> _Answer | str:
    """What ``call`` returns; where ``method`` of the executor fails, or returns what is wrong, the reason to decline.

    Args:
        what: the executor was queried about, in words.
        first: line of it.
    """
    problem: Exception | str
    try:
        answer = call()
        if not isinstance(answer, _Wrong):
            return answer
        problem = answer.problem
    except ThunderError:
        raise
    except Exception as error:  # noqa: BLE001 - becomes the reason
        problem = error
    return declined_by_failing(executor.name, what, method, first.location, problem)


def _problem(lines: Sequence[BoundSymbol], offered: Sequence[int], groups: Sequence[Sequence[int]]) -> str:
    """What is wrong with regions that an executor returned, besides their order; empty for nothing."""
    left = set(offered)
    for group in groups:
        if not group or list(group) != sorted(set(group)):
            return "returned a region that is no sorted sequence of positions"
        if not left.issuperset(group):
            return "returned a region of lines that were not offered, or are in another region"
        left.difference_update(group)
        if len({lines[index].context for index in group}) > 1:
            return "returned a region of lines with different contexts"
    return ""


def _is_offered(item: _Item, executor: Executor) -> bool:
    return not item.settled and item.assignment is not None and item.assignment.executor == executor.name


def _as_they_are(lines: Sequence[BoundSymbol]) -> list[_Item]:
    return [_Item(line, None) for line in lines]


def _readers(lines: Sequence[BoundSymbol]) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for index, line in enumerate(lines):
        for proxy in line.inputs():
            readers.setdefault(proxy.name, []).append(index)
    return readers
