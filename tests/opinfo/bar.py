"""What a battery of operators has to reach: nothing wrong, and all but a few equal to eager."""

from __future__ import annotations

from collections.abc import Mapping

from thunder_testing.outcome import Outcome, Status

REQUIRED_SHARE = 0.985
"""Of the operators that eager passes, how many have to pass compiled; the others have to be refused clearly."""
NEVER = (Status.WRONG, Status.CRASH, Status.TIMEOUT)
"""The outcomes that no operator may have."""


def require_none(status: Status, outcomes: Mapping[str, Outcome]) -> None:
    """No operator has the outcome ``status``."""
    found = [f"{name}: {outcome.message[:500]}" for name, outcome in outcomes.items() if outcome.status is status]
    assert not found, f"{len(found)} operators:\n" + "\n".join(found)


def require_share(outcomes: Mapping[str, Outcome], *, passed_by_eager: float) -> None:
    """Eager passes that share of the operators, so that the other one means something, and enough of those pass."""
    judged = {name: outcome for name, outcome in outcomes.items() if outcome.status is not Status.SKIPPED}
    refused = [f"{name}: {outcome.headline}" for name, outcome in judged.items() if outcome.status is Status.ERROR]
    passed = sum(outcome.status is Status.PASSED for outcome in judged.values())
    assert outcomes
    assert len(judged) >= passed_by_eager * len(outcomes), f"eager passes {len(judged)} of {len(outcomes)}"
    assert passed >= REQUIRED_SHARE * len(judged), f"{passed} of {len(judged)}; refused:\n" + "\n".join(refused)
