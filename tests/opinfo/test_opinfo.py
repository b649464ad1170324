"""Every operator of PyTorch's OpInfo database, compiled, against eager.

To run some of it: ``python -m tests.support --only 'operators/nn.functional.*'``.
"""

from __future__ import annotations

import functools

import pytest

from tests.batteries import part
from tests.opinfo.bar import NEVER, require_none, require_share
from tests.subjects import SUBJECT
from thunder_testing.opinfo import operator_names, run_operator
from thunder_testing.outcome import Outcome, Status
from thunder_testing.workers import run_in_workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]  # one fixture runs them all


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    names = part(operator_names() + operator_names(None))
    return run_in_workers(functools.partial(run_operator, compile=SUBJECT), names, workers=2)


@pytest.mark.parametrize("status", NEVER, ids=lambda status: status.name.lower())
def test_no_operator_goes_wrong(outcomes: dict[str, Outcome], status: Status) -> None:
    require_none(status, outcomes)


def test_share_that_passes(outcomes: dict[str, Outcome]) -> None:
    require_share({name: outcomes[name] for name in part(operator_names())}, passed_by_eager=0.96)
