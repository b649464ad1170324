"""The operations of compiled programs, and the executors that claim them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from thunder_core.executors.decision import Declined
from thunder_core.ir.annotation import Annotator
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.base import Phase
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.symbols.operation_names import called_symbol


@dataclass(frozen=True)
class Site:
    """Calls of one operation with arguments of the same kinds.

    Attributes:
        operation: its name.
        arguments: the dtypes, shapes, strides and devices of its tensors.
        executors: the names of the executors that run it, or its parts.
        view: whether it computes nothing: its results are views of its arguments.
    """

    operation: str
    arguments: str
    executors: tuple[str, ...]
    view: bool = False


def sites_of(entries: Iterable[CacheEntry]) -> Mapping[Site, int]:
    """The sites of the programs that run, with the number of their calls, in program order."""
    found: Counter[Site] = Counter()
    for entry in entries:
        for phase, assignments in entry.program.assignments.items():
            if phase is not Phase.JOINT:
                found.update(map(_site, assignments))
    return found


def claims_of(sites: Mapping[Site, int], executor: str) -> Mapping[str, int]:
    """The operations that an executor claims, with the number of their calls."""
    found: Counter[str] = Counter()
    for site, calls in sites.items():
        if executor in site.executors:
            found[site.operation] += calls
    return found


def declined_because(entries: Iterable[CacheEntry], executor: str) -> str:
    """The most frequent reason of an executor for declining operations that it implements; else that there are none."""
    reasons: Counter[str] = Counter()
    for entry in entries:
        for assignments in entry.program.assignments.values():
            for assignment in assignments:
                reasons.update(_reasons(assignment, executor))
    if not reasons:
        return "it implements none of the operations"
    return reasons.most_common(1)[0][0]


def _reasons(assignment: Assignment, executor: str) -> list[str]:
    own = [
        f"{_name(assignment.bound)}: {decision.reason}"
        for decision in assignment.decisions
        if isinstance(decision, Declined) and decision.executor == executor and decision.implements
    ]
    return own + [reason for part in assignment.parts for reason in _reasons(part, executor)]


def _site(assignment: Assignment) -> Site:
    bound = assignment.bound
    annotator = Annotator()
    arguments = [annotator.annotate(proxy).partition(" shares ")[0] for proxy in bound.inputs()]
    executors = dict.fromkeys(leaf.executor for leaf in assignment.leaves())
    return Site(_name(bound), ", ".join(arguments), tuple(executors), bound.is_view())


def _name(bound: BoundSymbol) -> str:
    return (bound.symbol.reference or called_symbol(bound)).name
