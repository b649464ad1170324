"""The gradients of every differentiable operator of PyTorch's OpInfo database, compiled, against eager.

To run some of it: ``python -m tests.support --only 'gradients/nn.functional.*'``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.batteries import part
from tests.opinfo.bar import NEVER, require_none, require_share
from tests.subjects import SUBJECT, eager
from thunder_testing.opinfo import differentiable_operator_names, run_backward
from thunder_testing.outcome import Outcome, Status
from thunder_testing.workers import run_in_workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]  # one fixture runs them all


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    runner = functools.partial(run_backward, compile=SUBJECT)
    return run_in_workers(runner, part(differentiable_operator_names()), workers=2)


@pytest.mark.parametrize("status", NEVER, ids=lambda status: status.name.lower())
def test_no_gradient_goes_wrong(outcomes: dict[str, Outcome], status: Status) -> None:
    require_none(status, outcomes)


def test_share_of_equal_gradients(outcomes: dict[str, Outcome]) -> None:
    require_share(outcomes, passed_by_eager=0.979)


class _Doubled(torch.autograd.Function):
    """The identity, with twice its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


WRONG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "value": (
        "grad: values differ",
        lambda function: lambda *args, **kwargs: _Doubled.apply(function(*args, **kwargs)),
    ),
    "none": ("requires_grad", lambda function: torch.no_grad()(function)),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_gradient_is_noticed(kind: str) -> None:
    text, compile = WRONG[kind]
    outcome = run_backward("mul", compile)
    assert outcome.status is Status.WRONG
    assert text in outcome.message


def test_eager_equals_itself() -> None:
    assert run_backward("nn.functional.dropout", eager) == Outcome(Status.PASSED)
