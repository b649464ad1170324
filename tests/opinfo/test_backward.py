"""The gradients of every differentiable operator of PyTorch's OpInfo database, compiled, against eager.

To run some of it: ``python -m tests.support --only 'gradients/nn.functional.*'``.
"""

from __future__ import annotations

import functools

import pytest

from tests.opinfo.bar import NEVER, require_none, require_share
from tests.subjects import SUBJECT
from thunder_core.testing.opinfo_gradients import differentiable_operator_names, run_backward
from thunder_core.testing.outcome import Outcome, Status
from thunder_core.testing.workers import run_in_workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    runner = functools.partial(run_backward, compile=SUBJECT)
    return run_in_workers(runner, differentiable_operator_names(), workers=2)


@pytest.mark.parametrize("status", NEVER, ids=lambda status: status.name.lower())
def test_no_gradient_goes_wrong(outcomes: dict[str, Outcome], status: Status) -> None:
    require_none(status, outcomes)


def test_share_of_equal_gradients(outcomes: dict[str, Outcome]) -> None:
    require_share(outcomes, at_least=529)
