"""The comparison helpers notice each kind of difference, and nothing else."""

from __future__ import annotations

import copy
import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from thunder_core.errors import DataDependentError
from thunder_testing import Arguments, BehaviourMismatch, Comparison, assert_same_behaviour
from thunder_testing.copying import copy_together
from thunder_testing.outcome import Outcome, Status, outcome_of
from thunder_testing.workers import run_in_workers


def arguments() -> Arguments:
    return Arguments(torch.randn(3, 4), [torch.ones(2)])


def original(x: torch.Tensor, items: list[Any]) -> Any:
    return x * 2, {"a": x.t(), "n": 3}


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "value": ("values differ", lambda x, items: (x * 2 + 1e-7, {"a": x.t(), "n": 3})),
    "dtype": ("dtype", lambda x, items: ((x * 2).double(), {"a": x.t(), "n": 3})),
    "shape": ("shape", lambda x, items: ((x * 2)[:2], {"a": x.t(), "n": 3})),
    "stride": ("stride", lambda x, items: ((x * 2).t().contiguous().t(), {"a": x.t(), "n": 3})),
    "requires_grad": ("requires_grad", lambda x, items: ((x * 2).requires_grad_(), {"a": x.t(), "n": 3})),
    "container": ("type tuple became list", lambda x, items: [x * 2, {"a": x.t(), "n": 3}]),
    "scalar": ("3 became 4", lambda x, items: (x * 2, {"a": x.t(), "n": 4})),
    "scalar type": ("type int became float", lambda x, items: (x * 2, {"a": x.t(), "n": 3.0})),
    "key order": ("keys", lambda x, items: (x * 2, {"n": 3, "a": x.t()})),
    "missing part": ("missing", lambda x, items: (x * 2, {"n": 3})),
    "lost alias": ("shares storage", lambda x, items: (x * 2, {"a": x.clone().t(), "n": 3})),
    "identity": ("same object", lambda x, items: (x * 2, {"a": x.t(), "n": 3}, items)[:2] and (items, items)),
    "mutation": ("args[0]", lambda x, items: (x.add_(0.5) * 2 - 1, {"a": x.t(), "n": 3})),
    "container mutation": ("args[1]", lambda x, items: items.append(1) or original(x, items)),
    "generator": ("generator", lambda x, items: torch.rand(1) is None or original(x, items)),
    "python generator": ("Python's random", lambda x, items: random.random() is None or original(x, items)),
    "subclass": ("type Tensor became Parameter", lambda x, items: (nn.Parameter(x * 2, False), {"a": x.t(), "n": 3})),
}


@pytest.mark.parametrize("kind", WRONG)
def test_difference_is_noticed(kind: str) -> None:
    text, wrong = WRONG[kind]
    with pytest.raises(BehaviourMismatch) as caught:
        assert_same_behaviour(original, arguments, lambda _: wrong)
    assert text in str(caught.value)


def test_equal_programs_pass() -> None:
    assert_same_behaviour(original, arguments, lambda function: function)
    assert_same_behaviour(original, arguments, lambda function: copy.copy(function), rounds=3)


def test_tolerance() -> None:
    assert_same_behaviour(original, arguments, lambda _: WRONG["value"][1], comparison=Comparison(atol=1e-5))
    assert_same_behaviour(original, arguments, lambda _: WRONG["value"][1], comparison=Comparison(values=False))


def test_exceptions_are_compared_by_type() -> None:
    def fails(x: torch.Tensor, items: Any) -> None:
        raise KeyError

    def fails_otherwise(x: torch.Tensor, items: Any) -> None:
        raise IndexError

    assert_same_behaviour(fails, arguments, lambda function: function)
    with pytest.raises(BehaviourMismatch, match="KeyError"):
        assert_same_behaviour(fails, arguments, lambda _: fails_otherwise)
    with pytest.raises(BehaviourMismatch, match="None"):
        assert_same_behaviour(fails, arguments, lambda _: original)
    with pytest.raises(IndexError):
        assert_same_behaviour(original, arguments, lambda _: fails_otherwise)


def test_state_of_modules_is_compared() -> None:
    class Frozen(nn.BatchNorm1d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)

    def compile(module: nn.Module) -> nn.Module:
        frozen = Frozen(4)
        frozen.load_state_dict(module.state_dict())
        return frozen

    with pytest.raises(BehaviourMismatch, match="running_mean"):
        assert_same_behaviour(nn.BatchNorm1d(4), lambda: (torch.randn(3, 4),), compile)


def test_gradients_are_compared() -> None:
    def compile(_: Any) -> Any:
        return lambda x: x.detach().mul(2) + (x - x.detach()) * 3

    def make() -> tuple[torch.Tensor]:
        return (torch.randn(3, requires_grad=True),)

    loose = Comparison(atol=1e-5, gradients=True)
    assert_same_behaviour(lambda x: x * 2, make, compile, comparison=Comparison(atol=1e-5))
    with pytest.raises(BehaviourMismatch, match=r"args\[0\].grad"):
        assert_same_behaviour(lambda x: x * 2, make, compile, comparison=loose)


def test_gradients_are_compared_by_value_within_a_tolerance_of_their_scale() -> None:
    class Approximate(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2 + gradient.abs().max() * 1e-3

    def check(scale_rtol: float) -> None:
        comparison = Comparison(gradients=True, gradient_rtol=0, gradient_atol=0, gradient_scale_rtol=scale_rtol)
        make = lambda: (torch.randn(5, requires_grad=True),)  # noqa: E731
        assert_same_behaviour(lambda x: x * 2, make, lambda _: Approximate.apply, comparison=comparison)

    check(2e-3)
    with pytest.raises(BehaviourMismatch, match=r"args\[0\].grad"):
        check(1e-4)


def test_scale_of_gradients_that_are_not_finite() -> None:
    comparison = Comparison(gradients=True, gradient_scale_rtol=1e-3)
    make = lambda: (torch.tensor([0.0, 1.0], requires_grad=True),)  # noqa: E731
    unit = lambda x: torch.sqrt(x[0] * 0) + x  # noqa: E731 - the first gradient is not a number
    assert_same_behaviour(unit, make, lambda function: function, comparison=comparison)
    with pytest.raises(BehaviourMismatch, match=r"args\[0\].grad"):
        assert_same_behaviour(unit, make, lambda _: lambda x: unit(x) + x - x.detach(), comparison=comparison)


def test_missed_cache_is_noticed() -> None:
    with pytest.raises(BehaviourMismatch, match="missed the cache"):
        assert_same_behaviour(original, arguments, lambda function: function, cache_hits=lambda _: 0)


def test_copies_keep_aliasing() -> None:
    base = torch.randn(4)
    generator = torch.Generator().manual_seed(3)
    conjugate = torch.randn(2, dtype=torch.complex64).conj()
    values = [base, base[1:], [base], generator, base.to_sparse(), conjugate, torch.zeros(1).expand(5)]
    copied, same = copy_together(values, base)
    assert copied[0] is same is copied[2][0]
    assert copied[0] is not base
    copied[1].fill_(9)
    assert copied[0][1:].tolist() == [9, 9, 9]
    assert base[1] != 9
    assert torch.equal(torch.rand(2, generator=copied[3]), torch.rand(2, generator=generator))
    assert copied[5].is_conj()
    assert copied[6].stride() == (0,)
    for special in (base.to_sparse(), conjugate):
        assert copy_together(special.requires_grad_())[0].requires_grad


@pytest.mark.slow
def test_outcomes() -> None:
    def refuse() -> None:
        raise DataDependentError("needs a value", advice=("do this",))

    def sleep() -> None:
        time.sleep(30)

    assert outcome_of(lambda: None) == Outcome(Status.PASSED)
    refused = outcome_of(refuse)
    assert refused.status is Status.ERROR
    assert refused.headline == "DataDependentError: needs a value"
    assert outcome_of(lambda: 1 // 0).status is Status.CRASH
    assert outcome_of(sleep, seconds=1).status is Status.TIMEOUT


def _case(name: str) -> Outcome:
    if name == "die":
        os._exit(7)
    if name == "hang":
        time.sleep(600)
    return Outcome(Status.PASSED, name)


@pytest.mark.slow
def test_workers_survive_what_cases_do() -> None:
    # The third case runs in a worker that has run another one, so that no time for its start is added to the limit.
    outcomes = run_in_workers(_case, ["a", "b", "hang", "die", "c"], workers=2, seconds=3)
    assert list(outcomes) == ["a", "b", "hang", "die", "c"]
    assert [outcome.status for outcome in outcomes.values()] == [
        Status.PASSED, Status.PASSED, Status.TIMEOUT, Status.CRASH, Status.PASSED,
    ]  # fmt: skip
    assert "7" in outcomes["die"].message
