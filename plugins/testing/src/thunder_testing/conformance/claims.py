"""Checks of an executor's answers: pure, with reasons, and not always no."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder_core.errors import LoweringError
from thunder_core.executors import Claim, Claimed, Decision, Declined
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.tracing.trace_call import rewritten_form
from thunder_testing.conformance.asking import Asked, answer_of, ask, refuse_unreasoned, watched
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.samples import recorded_instead
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tested import Tested


def check_claims(tested: Tested, subject: Subject, calls: Iterable[Call], *, each: bool = True) -> None:
    """Every answer is one, asking again gives the same, and each claim is used for some call.

    Args:
        each: whether the operation must be claimed for some call.

    Raises:
        Breach: naming the rule; "claimed" if nothing of the suite ever makes the executor claim the operation, so that
            nothing else would be tested.
    """
    seen = _Answers(subject)
    asked: list[Asked] = []
    for call in calls:
        for variant in (call, call.copy(tuple(call.differentiable()))):
            try:
                asked += _ask(tested, subject, variant, seen)
            except Breach as breach:
                breach.call = variant
                raise
            except NotApplicable as reason:
                seen.missing[str(reason)] += 1
    for one in reversed(asked):
        _must_be_equal(one.line, one.answer, answer_of(tested.executor, one.line))
    if each:
        seen.check(tested.executor.name)


def check_any_claim(tested: Tested, calls: Sequence[Call]) -> None:
    """The executor runs a line of some call. For executors without a table, of which that is all that is known."""
    name, reasons = tested.executor.name, Counter[str]()
    for call in calls:
        program = tested.compile(call)
        tested.run(program, call.copy())
        if program.last is None or name in program.last.report.executors:
            return
        reasons.update(reason for line in program.last.report.decisions for _, reason in line.declined)
    raise Breach(
        "claimed",
        f"{name} runs no line of the {len(calls)} operations and programs of the suite, because "
        f"{_most_common(reasons) or 'it has nothing for any of them'}; nothing was tested. "
        "Name operations that it runs: operations=[...]",
    )


@dataclass
class _Answers:
    """What was said so far.

    Attributes:
        used: positions of the claims that said yes before any other did.
        reasons: of declines, by the position of the claim; those of an executor without a table by -1.
        missing: why calls were not asked about.
    """

    subject: Subject
    used: set[int] = field(default_factory=set)
    reasons: dict[int, Counter[str]] = field(default_factory=dict)
    missing: Counter[str] = field(default_factory=Counter)

    def check(self, executor: str) -> None:
        """Raise `Breach` for a claim that was never used."""
        if not self.used and not self.reasons:
            why = "; ".join(self.missing) or _why_no_calls(self.subject)
            raise Breach("claimed", f"{self.subject.name} was never asked about, because {why}; give samples={{...}}")
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


def _ask(tested: Tested, subject: Subject, call: Call, seen: _Answers) -> list[Asked]:
    asked = ask(tested.executor, subject, call)
    for one in asked:
        for _ in range(2):
            _must_be_equal(one.line, one.answer, answer_of(tested.executor, one.line))
        if subject.claims:
            _ask_rows(subject.claims, one.line, seen)
        elif isinstance(one.answer, Claimed):
            seen.used.add(-1)
        if isinstance(one.answer, Declined):
            seen.reasons.setdefault(-1, Counter())[one.answer.reason] += 1
        elif one.answer.rewrite is not None:
            _rewrite(one)
    return list(asked)


def _ask_rows(claims: Sequence[Claim], line: BoundSymbol, seen: _Answers) -> None:
    for row, claim in enumerate(claims):
        if claim.check is None:
            seen.used.add(row)
            return
        answer = watched(f"the check of {line.symbol.name}", claim.check, *line.args, **line.kwargs)
        refuse_unreasoned(f"the answer of the check of {line.symbol.name}", answer)
        if answer is True:
            seen.used.add(row)
            return
        seen.reasons.setdefault(row, Counter())[answer] += 1


def _must_be_equal(line: BoundSymbol, first: Decision, again: Decision) -> None:
    if tuple(_parts(first)) != tuple(_parts(again)):
        raise Breach("pure queries", f"asked again about the same {line.symbol.name} it gives another answer: "
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


def _rewrite(asked: Asked) -> None:
    assert isinstance(asked.answer, Claimed)
    assert asked.answer.rewrite is not None
    try:
        rewritten_form(asked.line, asked.answer.rewrite, asked.context)
    except LoweringError as error:
        raise Breach("rewrite", error.problem) from error


def _most_common(reasons: Counter[str] | None) -> str:
    return "; ".join([f"{reason} ({count} times)" for reason, count in (reasons or Counter()).most_common(5)])
