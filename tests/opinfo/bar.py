"""What a battery of operators has to reach: equality with eager, but for operators that are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from thunder_testing.outcome import Outcome, Status

REFUSED: Final = frozenset({"sparse.sampled_addmm", "linalg.lstsq"})
"""Operators that raise an error which says why (docs/support.md)."""
PASSED_BY_EAGER: Final = 0.9
"""The least share of operators that eager passes; the others show nothing."""


def require_equal(outcomes: Mapping[str, Outcome]) -> None:
    """Every operator that eager passes is equal to eager, or among those that are refused."""
    judged = {name: outcome for name, outcome in outcomes.items() if outcome.status is not Status.SKIPPED}
    accepted = {name: {Status.PASSED, *([Status.ERROR] if name in REFUSED else [])} for name in judged}
    bad = [
        f"{name}: {outcome.status.name} {outcome.message[:500]}"
        for name, outcome in judged.items()
        if outcome.status not in accepted[name]
    ]
    assert not bad, f"{len(bad)} of {len(judged)} operators:\n" + "\n".join(bad)
    assert judged
    assert len(judged) >= PASSED_BY_EAGER * len(outcomes), f"eager passes {len(judged)} of {len(outcomes)}"
