"""Every operator of PyTorch's OpInfo database, compiled, against eager.

To run some of it: ``python -m tests.support --only 'operators/nn.functional.*'``.
"""

from __future__ import annotations

import functools

import pytest

from tests.subjects import SUBJECT
from thunder_core.testing.opinfo import operator_names, run_operator
from thunder_core.testing.outcome import Outcome, Status
from thunder_core.testing.workers import run_in_workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

REQUIRED_SHARE = 0.985
"""Of the operators that eager passes, how many have to pass compiled; the others have to be refused clearly."""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    names = operator_names() + operator_names(None)
    return run_in_workers(functools.partial(run_operator, compile=SUBJECT), names, workers=2)


@pytest.mark.parametrize("status", [Status.WRONG, Status.CRASH, Status.TIMEOUT], ids=lambda status: status.name.lower())
def test_no_operator_goes_wrong(outcomes: dict[str, Outcome], status: Status) -> None:
    found = [f"{name}: {outcome.message[:500]}" for name, outcome in outcomes.items() if outcome.status is status]
    assert not found, f"{len(found)} operators:\n" + "\n".join(found)


def test_share_that_passes(outcomes: dict[str, Outcome]) -> None:
    judged = {name: outcomes[name] for name in operator_names() if outcomes[name].status is not Status.SKIPPED}
    refused = [f"{name}: {outcome.headline}" for name, outcome in judged.items() if outcome.status is Status.ERROR]
    passed = sum(outcome.status is Status.PASSED for outcome in judged.values())
    assert len(judged) > 650
    assert passed >= REQUIRED_SHARE * len(judged), f"{passed} of {len(judged)}; refused:\n" + "\n".join(refused)
