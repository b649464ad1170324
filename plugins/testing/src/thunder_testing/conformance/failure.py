"""The exceptions with which suites report violations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from thunder_core.errors import ThunderError

if TYPE_CHECKING:
    import torch

    from thunder_testing.conformance.call import Call


class ConformanceError(ThunderError):
    """A suite cannot be created, because its tests lack something that they need."""


class ConformanceFailure(AssertionError):
    """The tested object violates a rule. The message has the rule, the call, and code to reproduce the failure."""


class NotApplicable(Exception):
    """There is nothing to test for this call; the test is skipped with this reason."""


class Breach(Exception):
    """A rule is violated. Becomes a `ConformanceFailure` with the call of the test.

    Args:
        rule: a few words, such as "strides", by which tests identify it.
        problem: the actual and the expected behavior.
        call: the call, if it differs from that of the test's id.

    Attributes:
        cotangents: the cotangents of a backward that followed.
    """

    def __init__(self, rule: str, problem: str, *, call: Call | None = None) -> None:
        super().__init__(f"{rule}: {problem}")
        self.rule = rule
        self.problem = problem
        self.call = call
        self.cotangents: tuple[torch.Tensor | None, ...] = ()


def check_applicable(checks: Iterable[Callable[[], None]]) -> None:
    """Run checks, except those that raise `NotApplicable`. Raises it with all reasons if all do."""
    __tracebackhide__ = True
    reasons, performed = [], 0
    for check in checks:
        try:
            check()
            performed += 1
        except NotApplicable as reason:
            reasons.append(str(reason))
    if not performed:
        raise NotApplicable("; ".join(dict.fromkeys(reasons)))


def as_failure(title: str, check: Callable[[], None]) -> None:
    """Run a check, and convert its exceptions, except `NotApplicable`, to a `ConformanceFailure` with this title."""
    __tracebackhide__ = True
    try:
        check()
    except NotApplicable:
        raise
    except Exception as error:  # noqa: BLE001 - it is raised again as what it means
        breach = error if isinstance(error, Breach) else Breach("runs", f"{type(error).__name__}: {error}")
        cause = error.__cause__ if isinstance(error, Breach) else error
        text = f"{title}: the rule of {breach.rule} is broken\n  {breach.problem}"
        raise ConformanceFailure(text) from cause
