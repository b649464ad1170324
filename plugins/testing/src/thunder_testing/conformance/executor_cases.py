"""The tests of an executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from thunder_testing.conformance.call import Call
from thunder_testing.conformance.case import Case
from thunder_testing.conformance.claims import check_any_claim, check_claims
from thunder_testing.conformance.failure import Breach, ConformanceFailure
from thunder_testing.conformance.plan import CHECKS, Plan
from thunder_testing.conformance.snippet import explained
from thunder_testing.conformance.subject import Subject


@dataclass(frozen=True, eq=False)
class ExecutorCases:
    """Creates the tests of an executor.

    Attributes:
        plan: the checks.
        subjects: the operations and programs to test with.
        table: whether the subjects come from the executor's table of claims, so that each must be claimed for some
            sample.
    """

    plan: Plan
    subjects: Sequence[Subject]
    table: bool

    def __iter__(self) -> Iterator[Case]:
        if not self.table:
            yield Case("all-claims", self._any_claim)
        for subject in self.subjects:
            if subject.symbols:
                yield Case(f"{subject.name}-claims", partial(self._claims, subject))
            for word, device, dtype, number in self.plan.tests(subject):
                place = "" if self.plan.devices == ("cpu",) else f"{device}-"
                name = f"{subject.name}-{word}-{place}{str(dtype).removeprefix('torch.')}-{number}"
                yield Case(name, partial(self._check, subject, word, device, dtype, number))

    def _check(self, subject: Subject, word: str, device: str, dtype: torch.dtype, number: int) -> None:
        __tracebackhide__ = True
        kind, check = CHECKS[word]
        variants = self.plan.calls(subject, kind, device, dtype)
        others = [*variants[:number], *variants[number + 1 :]]
        self._run(subject, word, variants[number], partial(check, self.plan.tested, subject, variants[number], others))

    def _claims(self, subject: Subject) -> None:
        __tracebackhide__ = True
        calls = self.plan.base(subject)
        check = partial(check_claims, self.plan.tested, subject, calls, each=self.table)
        self._run(subject, "claims", calls[0] if calls else None, check)

    def _any_claim(self) -> None:
        __tracebackhide__ = True
        calls = [call for subject in self.subjects for call in self.plan.base(subject)[:1]]
        try:
            check_any_claim(self.plan.tested, calls)
        except Breach as breach:
            name = self.plan.tested.executor.name
            raise ConformanceFailure(f"{name}: the rule of {breach.rule} is broken\n  {breach.problem}") from None

    def _run(self, subject: Subject, word: str, call: Call | None, check: Callable[[], None]) -> None:
        __tracebackhide__ = True
        try:
            check()
        except Breach as breach:
            tested = self.plan.tested
            title = f"{tested.executor.name}, {subject.name}, {word}"
            text = explained(title, subject.name, breach, breach.call or call, tested.spelled)
            raise ConformanceFailure(text) from breach.__cause__
