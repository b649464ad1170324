"""The executors' decisions on the ops of a compiled program, as rows and tables for reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from thunder.report.operation_counts import count_operations
from thunder_core.executors.decision import Claimed, Declined
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.storage_sizes import element_bytes
from thunder_core.ir.symbol import Symbol
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.base import Phase
from thunder_core.symbols.operation_names import called_symbol

PATTERN: Final = "pattern"


@dataclass(frozen=True)
class OpDecisions:
    """The decisions of the executors on one op.

    Attributes:
        phase: the program with the op: "inference", "forward" or "backward"; "joint" for an op before differentiation,
            whose derivative an executor may provide; "pattern" for a composite that no executor claimed, so that its
            ops stayed in the program.
        symbol: the name of its symbol; of an op that calls a function with copies of what it writes, of the function.
        outputs: names of its results.
        location: the user's line; None if there is none.
        executor: the executor that runs the op or provided its derivative. Of an op that was replaced by its parts,
            the executor that would run it. Of a composite the executor that fuses its ops, or "its parts".
        declined: the executors before it that declined, with their reasons.
        parts: the ops that replaced it.
        bytes: the bytes of its arguments and results: a lower bound of what it reads and writes.
        flops: floating-point operations by PyTorch's counters; None for operations that these do not count.
        variant: the implementation that the executor uses, if it has several. Those that it prefers are in
            ``declined``, as ``executor.variant``.
    """

    phase: str
    symbol: str
    outputs: tuple[str, ...]
    location: str | None
    executor: str
    declined: tuple[tuple[str, str], ...] = ()
    parts: tuple[OpDecisions, ...] = ()
    bytes: int | None = None
    flops: int | None = None
    variant: str = ""

    def leaves(self) -> Sequence[OpDecisions]:
        """The executed ops: the op, or the leaves of its parts."""
        return [leaf for part in self.parts for leaf in part.leaves()] if self.parts else [self]


Assignments = Mapping[Phase, tuple[Assignment, ...]]


def decisions_of(assignments: Assignments, unclaimed: tuple[Assignment, ...] = ()) -> tuple[OpDecisions, ...]:
    """The executors' decisions on each op, in program order; composites that were not claimed come first.

    Ops of the trace before differentiation are included if their derivative is an executor's, or if an executor
    declined them and forward does not contain them unchanged.
    """
    unchanged = {(leaf.bound.symbol, _results(leaf.bound)) for leaf in assignments.get(Phase.FORWARD, ())}
    return tuple(
        [_decisions(PATTERN, assignment) for assignment in unclaimed]
        + [
            _decisions(phase.value, assignment)
            for phase, of_phase in assignments.items()
            for assignment in of_phase
            if phase is not Phase.JOINT or _notable(assignment, unchanged)
        ]
    )


def count_executed(assignments: Assignments) -> dict[str, int]:
    """The number of executed ops, by executor."""
    executed = [of_phase for phase, of_phase in assignments.items() if phase is not Phase.JOINT]
    return dict(Counter([leaf.executor for of_phase in executed for one in of_phase for leaf in one.leaves()]))


def _notable(assignment: Assignment, unchanged: set[tuple[Symbol, tuple[str, ...]]]) -> bool:
    """Whether the report lists a differentiated op in addition to the ops that replace it."""
    if isinstance(assignment.decisions[-1], Claimed):
        return True
    return bool(_declined(assignment)) and (assignment.bound.symbol, _results(assignment.bound)) not in unchanged


def _declined(assignment: Assignment) -> list[tuple[str, str]]:
    """The executors that implement the op and declined it, with their reasons."""
    declined = [decision for decision in assignment.decisions if isinstance(decision, Declined)]
    return [(decision.executor, decision.reason) for decision in declined if decision.implements]


def _results(bound: BoundSymbol) -> tuple[str, ...]:
    return tuple([proxy.name for proxy in bound.outputs()])


def _decisions(phase: str, assignment: Assignment) -> OpDecisions:
    bound = assignment.bound
    declined = _declined(assignment)
    claim = assignment.decisions[-1]
    runs = claim.executor if isinstance(claim, Claimed) else "its parts" if phase == PATTERN else REFERENCE.name
    variant = claim.variant if isinstance(claim, Claimed) else ""
    if isinstance(claim, Claimed):
        declined += [(f"{claim.executor}.{name}", reason) for name, reason in claim.passed_over]
    return OpDecisions(
        phase,
        (bound.symbol.reference or called_symbol(bound)).name,
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
    read = {proxy.name: proxy for proxy in tensor_inputs_of(bound)}.values()
    storages = {proxy.storage for proxy in read}
    created = [proxy for proxy in tensor_outputs_of(bound) if proxy.storage not in storages]
    if not created and not bound.effects.mutates:  # a view
        return 0
    return sum(map(element_bytes, [*read, *created]))


@dataclass(frozen=True)
class Share:
    """The share of one executor in a program. Fractions of bytes and operations exclude ops with unknown numbers."""

    executor: str
    lines: int
    bytes: float
    flops: float


def executed(decisions: Sequence[OpDecisions]) -> list[OpDecisions]:
    """The ops that run: the leaves, without ops before differentiation and composites."""
    return [leaf for op in decisions if op.phase not in ("joint", PATTERN) for leaf in op.leaves()]


def shares(decisions: Sequence[OpDecisions]) -> tuple[Share, ...]:
    """The shares of the executors in the executed ops, the largest first."""
    leaves = executed(decisions)
    all_bytes = sum(leaf.bytes or 0 for leaf in leaves) or 1
    all_flops = sum(leaf.flops or 0 for leaf in leaves) or 1
    by_executor: dict[str, list[OpDecisions]] = {}
    for leaf in leaves:
        by_executor.setdefault(leaf.executor, []).append(leaf)
    rows = [
        Share(
            executor,
            len(claimed),
            sum(leaf.bytes or 0 for leaf in claimed) / all_bytes,
            sum(leaf.flops or 0 for leaf in claimed) / all_flops,
        )
        for executor, claimed in by_executor.items()
    ]
    return tuple(sorted(rows, key=lambda share: -share.lines))


def share_lines(decisions: Sequence[OpDecisions]) -> list[str]:
    """The shares as text."""
    rows = [
        f"{share.lines} by {share.executor} ({share.bytes:.0%} of bytes, {share.flops:.0%} of FLOPs)"
        for share in shares(decisions)
    ]
    return [f"operations claimed: {', '.join(rows) or 'none'}"]


@dataclass(frozen=True)
class DecisionRow:
    """The ops with one symbol, executor and list of declines.

    Attributes:
        phase, symbol, declined: as in `OpDecisions`.
        executor: the name of the executor, with its variant if it has several: ``sdpa.flash``.
        depth: 0 for ops of the program, 1 for their parts, and so on.
        lines: the number of ops.
        location: the user's line of the first op.
    """

    phase: str
    symbol: str
    executor: str
    declined: tuple[tuple[str, str], ...]
    depth: int
    lines: int
    location: str | None


def decision_rows(decisions: Sequence[OpDecisions]) -> tuple[DecisionRow, ...]:
    """The rows in order of first appearance; parts follow their op."""
    counts: dict[tuple[tuple[str, ...], str, str, tuple[tuple[str, str], ...]], int] = {}
    first: dict[object, OpDecisions] = {}

    def add(op: OpDecisions, path: tuple[str, ...]) -> None:
        executor = f"{op.executor}.{op.variant}" if op.variant else op.executor
        executor = "its parts" if op.parts else executor
        key = ((op.phase, *path), op.symbol, executor, op.declined)
        counts[key] = counts.get(key, 0) + 1
        first.setdefault(key, op)
        for part in op.parts:
            add(part, (*path, op.symbol))

    for op in decisions:
        add(op, ())
    rows = []
    for key, count in counts.items():
        path, symbol, executor, declined = key
        rows.append(DecisionRow(path[0], symbol, executor, declined, len(path) - 1, count, first[key].location))
    return tuple(rows)


def decision_table(decisions: Sequence[OpDecisions]) -> list[str]:
    """The rows as aligned text; reasons follow on separate lines."""
    rows = decision_rows(decisions)
    cells = [(row.phase, f"{row.lines} x", "  " * row.depth + row.symbol, row.executor) for row in rows]
    widths = [max([len(row[column]) for row in cells], default=0) for column in range(4)]
    lines = []
    for row, (phase, count, symbol, executor) in zip(rows, cells, strict=True):
        text = f"{phase:<{widths[0]}}  {count:>{widths[1]}} {symbol:<{widths[2]}}  {executor:<{widths[3]}}"
        lines.append(f"{text}  {row.location or ''}".rstrip())
        lines.extend(f"{'':<{widths[0]}}    not {name}: {reason}" for name, reason in row.declined)
    return lines
