"""Who runs a line, and who does not: what the executors answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from thunder_core.errors import ExecutorError, LoweringError
from thunder_core.executors.ask import ask
from thunder_core.executors.compiled_regions import RegionCounts
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.disk_tables import lowered_form
from thunder_core.executors.executor import Executor
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context, only_kernels
from thunder_core.ir.trace import Trace
from thunder_core.tracing.trace_call import rewritten_form


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """One line.

    Attributes:
        bound: the line that was offered.
        answers: in the order they were given. The last is the claim, unless the line was taken apart.
        parts: what it was taken apart into: what an executor rewrote it to, or core-ATen operators of which an executor
            claims one.
    """

    bound: BoundSymbol
    answers: tuple[Decision, ...]
    parts: tuple[Assignment, ...] = ()

    @property
    def executor(self) -> str:
        """Who runs the line."""
        return self.answers[-1].executor

    def leaves(self) -> tuple[Assignment, ...]:
        """The lines that run."""
        return tuple([leaf for part in self.parts for leaf in part.leaves()]) if self.parts else (self,)

    def with_leaves(self, others: Mapping[Assignment, Assignment]) -> Assignment:
        """The same with some leaves replaced."""
        if not self.parts:
            return others.get(self, self)
        return replace(self, parts=tuple([part.with_leaves(others) for part in self.parts]))


@dataclass(frozen=True, slots=True)
class AssignmentResult:
    """An executable trace, and for each line that was offered, in order, what became of it.

    Attributes:
        others: the same for other traces that were given at the same time.
        regions: of all of them, if any were fused.
    """

    trace: Trace
    assignments: tuple[Assignment, ...]
    others: tuple[AssignmentResult, ...] = ()
    regions: RegionCounts | None = None


NOTHING: Final[Mapping[str, BoundSymbol]] = MappingProxyType({})
_DEEPEST: Final = 16  # rewrites of rewrites, until it is taken for a circle


class Offers:
    """The executors, and what new lines need.

    Args:
        executors: in order of preference; the reference executor follows them.
        builder: names the values of new lines.
        ambient: the context of the trace.
    """

    def __init__(self, executors: Sequence[Executor], builder: Builder, ambient: Context) -> None:
        self.executors = (*executors, REFERENCE)
        self.builder = builder
        self.ambient = ambient
        self.takes_parts = any(executor.takes_parts for executor in executors)
        last = max([index for index, executor in enumerate(executors, 1) if executor.rewrites], default=0)
        self._rewriting = self.executors[:last]

    def offer(self, bound: BoundSymbol, start: int = 0, said: tuple[Decision, ...] = (), depth: int = 0) -> Assignment:
        """Query the executors from position ``start`` on; those before it declined, with the answers ``said``.

        A composite is offered to all of them before it is taken apart.
        """
        if bound.symbol.executor is not None:
            return Assignment(bound, (*said, Claimed(bound.symbol.executor)))
        answers = (*said, *ask(self.executors[start:], bound))
        claim = answers[-1]
        assert isinstance(claim, Claimed)
        if claim.rewrite is not None:
            try:
                return self._rewritten(bound, claim, answers, depth)
            except LoweringError as error:
                said = (*answers[:-1], Declined(claim.executor, str(error)))
                return self.offer(bound, self.position(claim.executor) + 1, said, depth)
        if self.takes_parts and claim.executor == REFERENCE.name:
            return self._lowered(bound, answers, start)
        return Assignment(bound, answers)

    def rewritten(
        self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol] = NOTHING, depth: int = 0
    ) -> list[BoundSymbol]:
        """The line as the first executor that claims it rewrites it; by itself if that one runs it as it is.

        Args:
            producers: the lines before it, by the names of their results.
        """
        if bound.symbol.executor is not None:
            return [bound]
        claim = next(iter(ask(self._rewriting, bound)[-1:]), None)  # those after them rewrite nothing
        if not isinstance(claim, Claimed):
            return [bound]
        if claim.rewrite is None:
            with only_kernels(None if bound.context is None else bound.context.attention):
                return [self.executors[self.position(claim.executor)].rewritten(bound, producers) or bound]
        try:
            lines = self._lines(bound, claim, depth)
        except LoweringError:  # raised again, with its reason, when the line is assigned
            return [bound]
        return [found for line in lines for found in self.rewritten(line, producers, depth + 1)]

    def position(self, executor: str) -> int:
        """The place of an executor in the order."""
        return next(index for index, own in enumerate(self.executors) if own.name == executor)

    def _rewritten(self, bound: BoundSymbol, claim: Claimed, answers: tuple[Decision, ...], depth: int) -> Assignment:
        lines = self._lines(bound, claim, depth)
        return Assignment(bound, answers, tuple([self.offer(line, depth=depth + 1) for line in lines]))

    def _lines(self, bound: BoundSymbol, claim: Claimed, depth: int) -> tuple[BoundSymbol, ...]:
        assert claim.rewrite is not None
        if depth > _DEEPEST:
            raise ExecutorError(
                f"{claim.executor} rewrites {bound.symbol.name} into itself",
                location=bound.location,
                advice=("its claim needs a check that declines what its rewrite makes",),
            )
        return self.builder.inline(rewritten_form(bound, claim.rewrite, self.ambient), bound)

    def _lowered(self, bound: BoundSymbol, answers: tuple[Decision, ...], start: int) -> Assignment:
        """The line taken apart, if an executor from ``start`` on claims a part that computes something.

        Those before refused a region with the whole line; its parts would be the same region again.
        """
        if not bound.effects.pure:
            return Assignment(bound, answers)
        try:
            form = lowered_form(bound, self.ambient)
        except LoweringError:
            return Assignment(bound, answers)
        lines = form.symbols
        if len(lines) == 1 and lines[0].symbol is bound.symbol:
            return Assignment(bound, answers)
        if not all(line.effects.pure for line in lines):  # those that write belong together
            return Assignment(bound, answers)
        asked = [own for executor in self.executors[start:] if (own := executor.for_parts(bound)) is not None]
        said = [ask(asked, line) for line in lines]
        if all(line.is_view() or one[-1].executor == REFERENCE.name for line, one in zip(lines, said, strict=True)):
            return Assignment(bound, answers)
        return Assignment(bound, answers, tuple(map(Assignment, self.builder.inline(form, bound), said)))
