"""The gradients of every differentiable operator of PyTorch's OpInfo database, compiled, against eager.

To run some of it: ``python -m tests.support --only 'gradients/nn.functional.*'``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.batteries import in_every_part, sample
from tests.opinfo.bar import require_equal
from tests.subjects import SUBJECT, eager
from thunder_testing.opinfo import differentiable_operator_names, run_backward
from thunder_testing.outcome import Outcome, Status
from thunder_testing.workers import run_in_workers


@in_every_part
@pytest.mark.timeout(1500)
def test_gradients_equal_eager() -> None:
    runner = functools.partial(run_backward, compile=SUBJECT)
    require_equal(run_in_workers(runner, sample(differentiable_operator_names()), workers=2))


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
