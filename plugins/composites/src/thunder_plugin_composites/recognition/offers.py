"""Dispatch of composites: to the first executor that claims it, unless one before it fuses the matched lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from thunder_core.executors.ask import ask
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import Executor
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Offers
from thunder_plugin_composites.recognition.search import PatternMatch


class CompositeOffers:
    """The executors, for the composites of one program.

    Args:
        executors: in order of preference.
        trace: the program.
    """

    def __init__(self, executors: Sequence[Executor], trace: Trace) -> None:
        self.executors = executors
        self.trace = trace

    def ask(self, match: PatternMatch) -> tuple[Decision, ...]:
        """The decisions up to the first claim, or of all. The claim may be one of the lines, by who fuses them all.

        An executor that runs some of the lines one by one does not count: one kernel for all of them is the better
        offer, also where it comes from an executor that stands later in the list.
        """
        answers: list[Decision] = []
        for executor in self.executors:
            answer = self._fused(executor, match) if executor.fuses else ask((executor,), match.composite)[0]
            answers.append(answer)
            if isinstance(answer, Claimed):
                break
        return tuple(answers)

    def refuse(self, composite: BoundSymbol, reason: str) -> tuple[Decision, ...]:
        """The decisions where it cannot be offered: that reason for each executor that has a kernel for it."""
        return tuple([Declined(one.name, reason) for one in self.executors if composite.symbol in one.composites])

    def _fused(self, executor: Executor, match: PatternMatch) -> Decision:
        """Whether a fusion executor takes all lines that compute something, as they are or lowered."""
        asked = replace(executor, on_decline="next") if isinstance(executor, ConfiguredExecutor) else executor
        offers = Offers((asked,), self._builder, self.trace.context)
        for line in match.lines:
            for leaf in offers.offer(line).leaves():
                if leaf.executor != executor.name and not leaf.bound.is_view():
                    reason = f"it does not fuse {leaf.bound.symbol.name}, a part of it"
                    return Declined(executor.name, reason, implements=False)
        return Claimed(executor.name)

    @cached_property
    def _builder(self) -> Builder:
        """Names for lowered lines that nobody sees."""
        return Builder.of(self.trace)


def takes_whole(executors: Sequence[Executor], answers: tuple[Decision, ...]) -> bool:
    """Whether the composite takes the place of its lines."""
    claim = answers[-1] if answers else None
    if not isinstance(claim, Claimed) or claim.executor == REFERENCE.name:
        return False
    return not next(one for one in executors if one.name == claim.executor).fuses
