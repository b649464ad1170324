"""From the answers of executors to what the report tells of them. Runs when somebody asks for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import torch

from thunder_core.autodiff.derivative import PLAIN
from thunder_core.autodiff.memory import element_bytes
from thunder_core.executors.decision import Claimed, Declined
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import modes_for_fakes
from thunder_core.ir.keys import call_key
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.size import as_constant
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.base import Phase
from thunder_core.report.decisions import PATTERN, LineDecisions
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_fake

_COUNTED: Final = frozenset({Tag.MATMUL, Tag.ATTENTION, Tag.OPAQUE})
_cache: Final = BoundedCache[int | None](4096)


def count_operations(bound: BoundSymbol) -> int | None:
    """Multiplications and additions of one run of the line, as `torch.utils.flop_counter` counts them.

    That knows products of matrices, convolutions and attention. None for all others, for lines that cannot run on fake
    tensors, and for the backward that an executor gives.
    """
    symbol = bound.symbol.reference or bound.symbol
    if Tag.BACKWARD in bound.symbol.tags or Tag.LOCAL in symbol.tags or not (symbol.tags & _COUNTED):
        return None
    if bound.varies():
        bound = bound.with_sizes(as_constant)
    key = call_key(bound, PLAIN)
    return None if key is None else _cache.get(key, lambda: _count(bound))


def _count(bound: BoundSymbol) -> int | None:
    leaves = list(iterate_leaves((bound.args, bound.kwargs)))
    if any(isinstance(leaf, Trace) or (isinstance(leaf, PROXY_TYPES) and not _dense(leaf)) for leaf in leaves):
        return None
    from torch.utils.flop_counter import FlopCounterMode  # imports Triton; only reports need it

    mode = ObservingFakeMode()
    counter = FlopCounterMode(display=False)

    def value(leaf: Any) -> Any:
        return make_fake(mode, leaf) if isinstance(leaf, TensorProxy) else leaf

    args, kwargs = map_leaves(value, bound.args), map_leaves(value, bound.kwargs)
    with torch.random.fork_rng(devices=[]), modes_for_fakes(PLAIN), mode, counter:
        try:
            (bound.symbol.reference or bound.symbol).target(*args, **kwargs)
        except Exception:  # noqa: BLE001 - the number is then unknown, which is what the caller is told
            return None
    return counter.get_total_flops() or None


def _dense(leaf: Any) -> bool:
    return isinstance(leaf, TensorProxy) and leaf.layout is torch.strided


Assignments = Mapping[Phase, tuple[Assignment, ...]]


def decisions_of(assignments: Assignments, unclaimed: tuple[Assignment, ...] = ()) -> tuple[LineDecisions, ...]:
    """What the executors said, line by line, in the order of the programs; first to composites that stayed lines.

    Of the lines as they were before differentiation, those are told whose derivative is an executor's, and those that
    an executor declined and that do not stand in forward as they were.
    """
    kept = {(leaf.bound.symbol, _results(leaf.bound)) for leaf in assignments.get(Phase.FORWARD, ())}
    return tuple(
        [_decisions(PATTERN, assignment) for assignment in unclaimed]
        + [
            _decisions(phase.value, assignment)
            for phase, found in assignments.items()
            for assignment in found
            if phase is not Phase.JOINT or _notable(assignment, kept)
        ]
    )


def executed_lines(assignments: Assignments) -> dict[str, int]:
    """Number of lines that run, by executor."""
    counts: dict[str, int] = {}
    for phase, found in assignments.items():
        for leaf in (leaf for assignment in found for leaf in assignment.leaves()) if phase is not Phase.JOINT else ():
            counts[leaf.executor] = counts.get(leaf.executor, 0) + 1
    return counts


def lines_of(
    traces: Iterable[Trace], assignments: Assignments, unclaimed: tuple[Assignment, ...]
) -> Iterator[BoundSymbol]:
    """All lines that the program has at some stage, and what these are taken apart into."""
    for trace in traces:
        yield from trace.symbols
        yield from lines_of(trace.bodies(), {}, ())
    for assignment in (*unclaimed, *(one for found in assignments.values() for one in found)):
        yield from _lines(assignment)


def _lines(assignment: Assignment) -> Iterator[BoundSymbol]:
    yield assignment.bound
    for part in assignment.parts:
        yield from _lines(part)


def _notable(assignment: Assignment, kept: set[tuple[Symbol, tuple[str, ...]]]) -> bool:
    """Whether a line that was differentiated is worth a mention besides what runs in its place."""
    if isinstance(assignment.answers[-1], Claimed):
        return True
    declined = any(isinstance(answer, Declined) and answer.implements for answer in assignment.answers)
    return declined and (assignment.bound.symbol, _results(assignment.bound)) not in kept


def _results(bound: BoundSymbol) -> tuple[str, ...]:
    return tuple([proxy.name for proxy in bound.outputs()])


def _decisions(phase: str, assignment: Assignment) -> LineDecisions:
    bound = assignment.bound
    declined = [
        (answer.executor, answer.reason)
        for answer in assignment.answers
        if isinstance(answer, Declined) and answer.implements
    ]
    claim = assignment.answers[-1]
    runs = claim.executor if isinstance(claim, Claimed) else "its parts" if phase == PATTERN else REFERENCE.name
    variant = claim.variant if isinstance(claim, Claimed) else ""
    if isinstance(claim, Claimed):
        declined += [(f"{claim.executor}.{name}", reason) for name, reason in claim.passed_over]
    return LineDecisions(
        phase,
        bound.symbol.reference.name if bound.symbol.reference is not None else bound.symbol.name,
        _results(bound),
        None if bound.location is None else bound.location.place(),
        runs,
        tuple(declined),
        tuple([_decisions(phase, part) for part in assignment.parts]),
        _bytes(bound),
        count_operations(bound),
        variant,
    )


def _bytes(bound: BoundSymbol) -> int:
    read: dict[str, Any] = {proxy.name: proxy for proxy in tensor_inputs_of(bound)}
    made = {proxy.storage: proxy for proxy in read.values()}
    fresh = [proxy for proxy in tensor_outputs_of(bound) if proxy.storage not in made]
    if not fresh and not bound.effects.mutates:  # a view
        return 0
    return sum(map(element_bytes, [*read.values(), *fresh]))


def region_contents(traces: Iterable[Trace]) -> tuple[str, ...]:
    """A sentence for each different region of executable traces, in the order in which they run.

    A region is a line that an executor fused: its symbol has no importable name, and it has parts.
    """
    equal: dict[Any, list[tuple[str, BoundSymbol]]] = {}
    for trace in traces:
        for line in trace.symbols:
            if line.symbol.executor is not None and Tag.LOCAL in line.symbol.tags and line.parts:
                equal.setdefault(line.symbol.target, []).append((trace.name, line))
    return tuple([_content(lines) for lines in equal.values()])


def _content(lines: list[tuple[str, BoundSymbol]]) -> str:
    program, line = lines[0]
    times = f", {len(lines)} times" if len(lines) > 1 else ""
    inputs, outputs = len(list(line.inputs())), len(list(line.outputs()))
    operations = Counter([part.symbol.name.removeprefix("torch.ops.") for part in line.parts])
    names = ", ".join([f"{count} x {name}" if count > 1 else name for name, count in operations.items()])
    return f"{line.symbol.name} in {program}{times}: from {inputs} to {outputs} tensors by {names}"
