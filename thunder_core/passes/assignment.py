"""Query the executors about ops: decisions, rewrites and lowered forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from thunder_core.errors import ExecutorError, LoweringError, SizeVariesError
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.disk_tables import lowered_form
from thunder_core.executors.executor import Executor, RegionCounts, declined_by_failing
from thunder_core.executors.query import query_executors
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context, only_kernels
from thunder_core.ir.trace import Trace
from thunder_core.tracing.trace_call import rewritten_form


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The executors' decisions about one op.

    Attributes:
        bound: the op that was offered.
        decisions: in order of the executors. The last is the claim, unless the op has parts.
        parts: the ops that replace it: those of an executor's rewrite, or core-ATen ops, one of which an executor
            claims.
    """

    bound: BoundSymbol
    decisions: tuple[Decision, ...]
    parts: tuple[Assignment, ...] = ()

    @property
    def executor(self) -> str:
        """The name of the executor that runs the op."""
        return self.decisions[-1].executor

    def leaves(self) -> tuple[Assignment, ...]:
        """The ops that run: the op itself, or its parts, recursively."""
        return tuple([leaf for part in self.parts for leaf in part.leaves()]) if self.parts else (self,)

    def offered_ops(self) -> Iterator[BoundSymbol]:
        """The op, and its parts, recursively."""
        yield self.bound
        for part in self.parts:
            yield from part.offered_ops()

    def with_leaves(self, others: Mapping[Assignment, Assignment]) -> Assignment:
        """The assignment with some leaves replaced."""
        if not self.parts:
            return others.get(self, self)
        return replace(self, parts=tuple([part.with_leaves(others) for part in self.parts]))


@dataclass(frozen=True, slots=True)
class AssignmentResult:
    """An executable trace, and the assignment of each offered op, in order.

    Attributes:
        others: the results for the other traces of the pass.
        regions: counts of the regions of all traces.
    """

    trace: Trace
    assignments: tuple[Assignment, ...]
    others: tuple[AssignmentResult, ...] = ()
    regions: RegionCounts | None = None


_NOTHING: Final[Mapping[str, BoundSymbol]] = MappingProxyType({})
_DEEPEST: Final = 16  # nested rewrites, beyond which a cycle is assumed


class Offers:
    """Offers ops of a trace to executors, and builds the ops that replace them.

    Args:
        executors: in order of preference; the reference executor is appended.
        builder: names the values of new ops.
        ambient: the context of the trace.
    """

    def __init__(self, executors: Sequence[Executor], builder: Builder, ambient: Context) -> None:
        self.executors = (*executors, REFERENCE)
        self.builder = builder
        self.ambient = ambient
        self.takes_parts = any(executor.takes_parts for executor in executors)
        last = max([index for index, executor in enumerate(executors, 1) if executor.rewrites], default=0)
        self._rewriting = self.executors[:last]

    def offer(
        self, bound: BoundSymbol, start: int = 0, declined: tuple[Decision, ...] = (), depth: int = 0
    ) -> Assignment:
        """Query the executors from position ``start`` on; ``declined`` has the decisions of those before it.

        A composite is offered to all executors before it is decomposed.
        """
        if bound.symbol.executor is not None:
            return Assignment(bound, (*declined, Claimed(bound.symbol.executor)))
        decisions = (*declined, *query_executors(self.executors[start:], bound))
        claim = decisions[-1]
        assert isinstance(claim, Claimed)
        if claim.rewrite is not None:
            try:
                return self._rewritten(bound, claim, decisions, depth)
            except LoweringError as error:
                declined = (*decisions[:-1], self._without_rewrite(bound, claim.executor, error))
                return self.offer(bound, self.position(claim.executor) + 1, declined, depth)
        if self.takes_parts and claim.executor == REFERENCE.name:
            return self._lowered(bound, decisions, start)
        return Assignment(bound, decisions)

    def rewritten(
        self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol] = _NOTHING, depth: int = 0
    ) -> list[BoundSymbol]:
        """The ops to which the first executor that claims ``bound`` rewrites it; ``[bound]`` without a rewrite.

        Args:
            producers: the preceding ops, by the names of their results.
        """
        if bound.symbol.executor is not None:
            return [bound]
        claim = next(iter(query_executors(self._rewriting, bound)[-1:]), None)  # later executors rewrite nothing
        if not isinstance(claim, Claimed):
            return [bound]
        if claim.rewrite is None:
            with only_kernels(None if bound.context is None else bound.context.attention):
                return [self.executors[self.position(claim.executor)].rewritten(bound, producers) or bound]
        try:
            ops = self._ops(bound, claim, depth)
        except LoweringError:  # raised again, with its reason, when the op is assigned
            return [bound]
        return [part for op in ops for part in self.rewritten(op, producers, depth + 1)]

    def position(self, executor: str) -> int:
        """The position of the executor of that name in the order."""
        return next(index for index, candidate in enumerate(self.executors) if candidate.name == executor)

    def _rewritten(self, bound: BoundSymbol, claim: Claimed, decisions: tuple[Decision, ...], depth: int) -> Assignment:
        ops = self._ops(bound, claim, depth)
        return Assignment(bound, decisions, tuple([self.offer(op, depth=depth + 1) for op in ops]))

    def _ops(self, bound: BoundSymbol, claim: Claimed, depth: int) -> tuple[BoundSymbol, ...]:
        assert claim.rewrite is not None
        if depth > _DEEPEST:
            raise ExecutorError(
                f"{claim.executor} rewrites {bound.symbol.name} into itself",
                location=bound.location,
                advice=("its claim needs a check that declines the calls of its rewrite",),
            )
        return self.builder.inline(rewritten_form(bound, claim.rewrite, self.ambient), bound)

    def _without_rewrite(self, bound: BoundSymbol, name: str, error: LoweringError) -> Declined:
        """The decline of an executor whose rewrite cannot be used; if that is the rewrite's fault, after a warning.

        Raises:
            ExecutorError: it is, and ``THUNDER_STRICT=1``, or the executor is configured with ``on_decline="error"``.
        """
        reason = error.problem
        if not isinstance(error.__cause__, SizeVariesError):
            declined_by_failing(name, bound.symbol.name, "rewrite", bound.location, f"cannot be used: {reason}")
        declined = Declined(name, reason)
        executor = self.executors[self.position(name)]
        if isinstance(executor, ConfiguredExecutor):
            executor.report(bound, declined)
        return declined

    def _lowered(self, bound: BoundSymbol, decisions: tuple[Decision, ...], start: int) -> Assignment:
        """The core-ATen form of the op, if an executor from ``start`` on claims a part that is not a view.

        Executors before ``start`` refused a region with the whole op; its parts would be the same region again.
        """
        if not bound.effects.pure:
            return Assignment(bound, decisions)
        try:
            form = lowered_form(bound, self.ambient)
        except LoweringError:
            return Assignment(bound, decisions)
        ops = form.symbols
        if len(ops) == 1 and ops[0].symbol is bound.symbol:
            return Assignment(bound, decisions)
        if not all(op.effects.pure for op in ops):  # parts that write must stay together
            return Assignment(bound, decisions)
        executors = [part for executor in self.executors[start:] if (part := executor.for_parts(bound)) is not None]
        of_parts = [query_executors(executors, op) for op in ops]
        if all(op.is_view() or one[-1].executor == REFERENCE.name for op, one in zip(ops, of_parts, strict=True)):
            return Assignment(bound, decisions)
        return Assignment(bound, decisions, tuple(map(Assignment, self.builder.inline(form, bound), of_parts)))
