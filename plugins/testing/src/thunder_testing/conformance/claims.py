"""Checks of an executor's decisions: they are deterministic, have reasons, and claim some call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder.report.compile_report import entry_report
from thunder_core.errors import LoweringError
from thunder_core.executors import Claim, Claimed, Decision, Declined
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.tracing.trace_call import rewritten_form
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.queries import Query, decision_of, query, refuse_unreasoned, watched
from thunder_testing.conformance.samples import recorded_instead
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested


def check_claims(tested: Tested, subject: Subject, calls: Iterable[Call], *, each: bool = True) -> None:
    """Check that all decisions are valid, that repeated queries give the same decision, and that each claim is used.

    Args:
        each: whether the operation must be claimed for some call.

    Raises:
        Breach: with the violated rule; "claimed" if the executor claims the operation for no call of the suite, so that
            nothing else is tested.
    """
    seen = _Seen(subject)
    queries: list[Query] = []
    for call in calls:
        for variant in (call, call.copy(tuple(call.differentiable()))):
            try:
                queries += _query(tested, subject, variant, seen)
            except Breach as breach:
                breach.call = variant
                raise
            except NotApplicable as reason:
                seen.missing[str(reason)] += 1
    for one in reversed(queries):
        _must_be_equal(one.op, one.decision, decision_of(tested.executor, one.op))
    if each:
        seen.check(tested.executor.name)


def check_any_claim(tested: Tested, calls: Sequence[Call]) -> None:
    """Check that the executor runs an operation of some call, for executors without a table of claims."""
    name, reasons = tested.executor.name, Counter[str]()
    for call in calls:
        program = tested.compile(call)
        tested.run(program, call.copy())
        if program.last is None:
            return
        report = entry_report(program.last)
        if name in report.executors:
            return
        reasons.update(reason for decision in report.decisions for _, reason in decision.declined)
    raise Breach(
        "claimed",
        f"{name} runs none of the {len(calls)} operations and programs of the suite, because "
        f"{_most_common(reasons) or 'it has nothing for any of them'}; nothing was tested. "
        "Name operations that it runs: operations=[...]",
    )


@dataclass
class _Seen:
    """The decisions so far.

    Attributes:
        used: positions of the claims that were the first to accept a call.
        reasons: reasons for declining, by position of the claim; those of an executor without a table by -1.
        missing: reasons why the executor was not queried about calls.
    """

    subject: Subject
    used: set[int] = field(default_factory=set)
    reasons: dict[int, Counter[str]] = field(default_factory=dict)
    missing: Counter[str] = field(default_factory=Counter)

    def check(self, executor: str) -> None:
        """Raise `Breach` for a claim that was never used."""
        if not self.used and not self.reasons:
            why = "; ".join(self.missing) or _why_no_calls(self.subject)
            raise Breach("claimed", f"{self.subject.name} was never queried, because {why}; give samples={{...}}")
        rows = range(len(self.subject.claims)) if self.subject.claims else (-1,)
        for row in rows:
            if row not in self.used:
                which = f"claim {row + 1} of {len(rows)} for it" if len(rows) > 1 else "it"
                why = _most_common(self.reasons.get(row)) or "a claim before it takes every call"
                raise Breach(
                    "claimed",
                    f"{executor} never claimed {self.subject.name} ({which}), because {why}; nothing was tested",
                )


def _why_no_calls(subject: Subject) -> str:
    instead = recorded_instead(subject, "cpu")
    if instead:
        return f"calls of it are recorded as {', '.join(sorted(instead))}, which is what to claim"
    return "the suite knows no calls of it"


def _query(tested: Tested, subject: Subject, call: Call, seen: _Seen) -> list[Query]:
    queries = query(tested.executor, subject, call)
    for one in queries:
        for _ in range(2):
            _must_be_equal(one.op, one.decision, decision_of(tested.executor, one.op))
        if subject.claims:
            _query_rows(subject.claims, one.op, seen)
        elif isinstance(one.decision, Claimed):
            seen.used.add(-1)
        if isinstance(one.decision, Declined):
            seen.reasons.setdefault(-1, Counter())[one.decision.reason] += 1
        elif one.decision.rewrite is not None:
            _check_rewrite(one)
    return list(queries)


def _query_rows(claims: Sequence[Claim], op: BoundSymbol, seen: _Seen) -> None:
    for row, claim in enumerate(claims):
        if claim.check is None:
            seen.used.add(row)
            return
        result = watched(f"the check of {op.symbol.name}", claim.check, *op.args, **op.kwargs)
        refuse_unreasoned(f"the result of the check of {op.symbol.name}", result)
        if result is True:
            seen.used.add(row)
            return
        seen.reasons.setdefault(row, Counter())[result] += 1


def _must_be_equal(op: BoundSymbol, first: Decision, again: Decision) -> None:
    if tuple(_parts(first)) != tuple(_parts(again)):
        raise Breach("pure queries", f"a second query about the same {op.symbol.name} gives another decision: "
                     f"{_words(first)}, then {_words(again)}")  # fmt: skip


def _parts(decision: Decision) -> Iterator[Any]:
    yield decision.executor
    if isinstance(decision, Claimed):
        yield decision.rewrite
        yield decision.implementation is None or decision.implementation.name
    else:
        yield decision.reason


def _words(decision: Decision) -> str:
    return "claimed" if isinstance(decision, Claimed) else f"declined, because {decision.reason}"


def _check_rewrite(one: Query) -> None:
    assert isinstance(one.decision, Claimed)
    assert one.decision.rewrite is not None
    try:
        rewritten_form(one.op, one.decision.rewrite, one.context)
    except LoweringError as error:
        raise Breach("rewrite", error.problem) from error


def _most_common(reasons: Counter[str] | None) -> str:
    return "; ".join([f"{reason} ({count} times)" for reason, count in (reasons or Counter()).most_common(5)])
