"""How the suites say that something is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from thunder_core.errors import ThunderError

if TYPE_CHECKING:
    import torch

    from thunder_testing.conformance.call import Call


class ConformanceError(ThunderError):
    """A suite cannot be made: something is missing that its tests need."""


class ConformanceFailure(AssertionError):
    """What is tested breaks a rule. The message says which one, for which call, and how to see it again."""


class NotApplicable(Exception):
    """There is nothing to test for this call: the test is skipped with this reason."""


class Breach(Exception):
    """A rule is broken. Becomes a `ConformanceFailure` with the call that it happened at.

    Args:
        rule: a few words, like "strides"; tests and people look for them.
        problem: what was seen, and what was expected.
        call: the very call, where it differs from the one that the test is named after.

    Attributes:
        cotangents: of a backward that followed.
    """

    def __init__(self, rule: str, problem: str, *, call: Call | None = None) -> None:
        super().__init__(f"{rule}: {problem}")
        self.rule = rule
        self.problem = problem
        self.call = call
        self.cotangents: tuple[torch.Tensor | None, ...] = ()


def check_applicable(checks: Iterable[Callable[[], None]]) -> None:
    """Run checks, of which those that raise `NotApplicable` are left out. Raises it with the reasons if all are."""
    __tracebackhide__ = True
    reasons, made = [], 0
    for check in checks:
        try:
            check()
            made += 1
        except NotApplicable as reason:
            reasons.append(str(reason))
    if not made:
        raise NotApplicable("; ".join(dict.fromkeys(reasons)))


def as_failure(title: str, check: Callable[[], None]) -> None:
    """Run a check. What it raises, unless it is `NotApplicable`, becomes a `ConformanceFailure` with this title."""
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
