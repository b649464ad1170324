"""Offers of composites to executors: the first that claims or fuses the operations of a match runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.decision import Claimed, Decision, Declined
from thunder_core.executors.executor import Executor
from thunder_core.executors.query import query_executors
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Offers
from thunder_plugin_composites.recognition.search import PatternMatch


class CompositeOffers:
    """The offers of composites in one program to the executors.

    Args:
        executors: in order of preference.
        trace: the program.
    """

    def __init__(self, executors: Sequence[Executor], trace: Trace) -> None:
        self.executors = executors
        self.trace = trace

    def decisions(self, match: PatternMatch) -> tuple[Decision, ...]:
        """The decisions up to the first claim, or all. A fusion executor that fuses all operations counts as a claim.

        An executor that runs some of the operations one by one does not: one kernel for all of them is preferred, also
        of an executor that is later in the list.
        """
        decisions: list[Decision] = []
        for executor in self.executors:
            single = () if executor.fuses else query_executors((executor,), match.composite)
            decision = single[0] if single else self._fused(executor, match)
            decisions.append(decision)
            if isinstance(decision, Claimed):
                break
        return tuple(decisions)

    def refuse(self, composite: BoundSymbol, reason: str) -> tuple[Decision, ...]:
        """The decisions for a composite that cannot be offered: this reason for each executor with a kernel for it."""
        return tuple([Declined(one.name, reason) for one in self.executors if composite.symbol in one.composites])

    def _fused(self, executor: Executor, match: PatternMatch) -> Decision:
        """Whether a fusion executor fuses all operations that compute something, as they are or lowered."""
        unconfigured = replace(executor, on_decline="next") if isinstance(executor, ConfiguredExecutor) else executor
        offers = Offers((unconfigured,), self._builder, self.trace.context)
        for op in match.ops:
            for leaf in offers.offer(op).leaves():
                if leaf.executor != executor.name and not leaf.bound.is_view():
                    reason = f"it does not fuse {leaf.bound.symbol.name}, a part of it"
                    return Declined(executor.name, reason, implements=False)
        return Claimed(executor.name)

    @cached_property
    def _builder(self) -> Builder:
        """Names for lowered operations, which are discarded."""
        return Builder.of(self.trace)


def takes_whole(executors: Sequence[Executor], decisions: tuple[Decision, ...]) -> bool:
    """Whether the composite replaces its operations."""
    claim = decisions[-1] if decisions else None
    if not isinstance(claim, Claimed) or claim.executor == REFERENCE.name:
        return False
    return not next(one for one in executors if one.name == claim.executor).fuses
