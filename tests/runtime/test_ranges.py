"""Branches on random draws: recorded where the range of the draw decides them, refused with the ways out elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.subjects import SUBJECT, eager
from thunder_core.errors import DataDependentError

DECIDED: dict[str, Callable[[torch.Tensor], Any]] = {
    "less": lambda x: [bool(torch.rand([]) < limit) for limit in (-1, 0, 0.0, False, 1, 1.0, 2, True, math.inf)],
    "less or equal": lambda x: [bool(torch.rand(()) <= limit) for limit in (-1, -0.1, 1, 1.0, 3)],
    "greater": lambda x: [bool(torch.rand(1) > limit) for limit in (-1, -0.1, 1, 2.5)],
    "greater or equal": lambda x: [bool(torch.rand(1, 1) >= limit) for limit in (-1, 0, 1, 2.5)],
    "swapped": lambda x: [bool(limit > torch.rand([])) for limit in (0.0, 1)],
    "swapped, or equal": lambda x: [bool(torch.rand([]) <= -1), bool(torch.rand([]) <= 1)],
    "functions": lambda x: [bool(torch.lt(torch.rand([]), 0)), torch.is_nonzero(torch.ge(torch.rand([]), other=0))],
    "item": lambda x: (torch.rand([]) < 0).item() or not (torch.rand([]) >= 0).is_nonzero(),
    "not": lambda x: not torch.rand([]) < 0.0 or x.shape == (3,),
    "like": lambda x: bool(torch.rand_like(x[:1]) < 0),
    "dtypes": lambda x: [
        bool(torch.rand([], dtype=dtype) < limit)
        for dtype in (torch.float16, torch.bfloat16, torch.float64)
        for limit in (0, 1)
    ],
    "generator": lambda x: bool(torch.rand([], generator=torch.default_generator) < 0),
    "uniform": lambda x: [
        bool(torch.empty(1).uniform_() < 1),
        bool(torch.empty(1).uniform_(0, 0.5) <= 0.5),
        bool(torch.empty(1).uniform_(0.25, 0.5) < 0.25),
        bool(torch.empty(1).uniform_(-2, to=5) >= -2),
        bool(torch.empty(1).uniform_(to=0.5) > 0.5),
    ],
    "bernoulli": lambda x: [
        bool(torch.bernoulli(torch.full((1,), 0.5)) > 1),
        bool(torch.empty(1).bernoulli_(0.3) >= 0),
        bool(torch.bernoulli(x[:1].sigmoid()) <= 1),
    ],
    "written before": lambda x: bool(torch.zeros(1).add_(x[:1]).uniform_() < 0),
    "used after": lambda x: (lambda draw: (bool(draw < 0), draw.add_(1)))(torch.rand([])),
}


@pytest.mark.parametrize("name", DECIDED)
def test_decided_by_the_range(name: str, check: Callable[..., None]) -> None:
    """The generator ends where eager leaves it, so every draw is made."""
    check(lambda x: (DECIDED[name](x), x + torch.rand(3)), lambda: (torch.randn(3),), rounds=3)


def written_through_a_view() -> torch.Tensor:
    draw = torch.rand([])
    draw.view(1).sub_(1)
    return draw < 0


def answer_written() -> torch.Tensor:
    answer = torch.rand([]) < 0
    answer.view(1).logical_not_()
    return answer


UNDECIDED: dict[str, Callable[[], torch.Tensor]] = {
    "inside": lambda: torch.rand([]) < 0.1,
    "the lower bound is drawn": lambda: torch.rand([]) <= 0,
    "not a number": lambda: torch.rand([]) < math.nan,
    "closed": lambda: torch.empty(1).uniform_(0, 0.5) < 0.5,
    "rounded past the bound": lambda: torch.empty(1).uniform_(-1e8, 5) <= 5,
    # eager compares in the tensor's dtype, where the number is 0
    "rounded to the bound": lambda: torch.rand([]) <= -1e-60,
    # ... and there the bound is a little more than 0.3
    "rounded bound": lambda: torch.empty(1).uniform_(0, 0.3) <= 0.3,
    "no range": lambda: torch.randn([]) < -100,
    "computed": lambda: torch.rand([]) - 1 < 0,
    "a tensor": lambda: torch.rand([]) < torch.rand([]),
    "written through a view": written_through_a_view,
    "answer written": answer_written,
    "overwritten": lambda: torch.rand([]).normal_() < 0,
}


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
@pytest.mark.parametrize("name", UNDECIDED)
def test_not_decided_by_the_range(name: str, jit: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError, match="drawn at random") as caught:
        jit(lambda x: x if UNDECIDED[name]() else -x, sharp_edges="error")(torch.randn(3))
    assert "probability of 0" in str(caught.value)


@pytest.mark.skipif(SUBJECT is eager, reason="about compiled programs")
def test_the_message_blames_inputs_where_they_take_part(jit: Callable[..., Any]) -> None:
    with pytest.raises(DataDependentError, match="depends on the program's inputs") as caught:
        jit(lambda x: x if torch.rand([]) < x.sum() else -x, sharp_edges="error")(torch.randn(3))
    assert "probability of 0" not in str(caught.value)


class DropsLayers(nn.Module):
    """Layers of which each is left out with a probability; what it returns is a tensor."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.probability = probability

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.training and torch.rand([]) < self.probability:
                continue
            x = layer(x).relu()
        return x


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_layer_drop_in_a_part_of_a_model(probability: float, check_gradients: Callable[..., None]) -> None:
    """With a probability in between, the part that skips layers is called as eager calls it."""
    model = nn.Sequential(nn.Linear(4, 4), DropsLayers(probability), nn.Linear(4, 2))
    check_gradients(model.train(), lambda: (torch.randn(3, 4),), rounds=4)


def test_another_probability_is_another_program(jit: Callable[..., Any]) -> None:
    model = DropsLayers(0.0)
    compiled = jit(model)
    x = torch.randn(2, 4)
    assert torch.equal(compiled(x), model(x))
    model.probability = 1.0
    assert torch.equal(compiled(x), x)
