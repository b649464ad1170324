"""Executors with state: one for each line, the same in all compilations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import thunder
from thunder_core.executors import Claim, DerivativePair, OperatorExecutor


@dataclass
class Scale:
    """Counts what it sees, as the scales of eight-bit formats do."""

    seen: list[str] = field(default_factory=list)


MADE: list[Scale] = []


def make(bound: Any) -> Scale:
    MADE.append(Scale())
    return MADE[-1]


def run(state: Scale, input: torch.Tensor) -> torch.Tensor:
    state.seen.append("run")
    return torch.sin(input)


def forward(state: Scale, input: torch.Tensor) -> Any:
    state.seen.append("forward")
    return torch.sin(input), (input,)


def fake(state: Scale, input: torch.Tensor) -> Any:
    return torch.empty_like(input), (input,)


def backward(state: Scale, residuals: Any, cotangents: Any, wanted: Any) -> Any:
    state.seen.append("backward")
    return (cotangents[0] * torch.cos(residuals[0]),)


EXECUTOR = OperatorExecutor(
    "scaled", (Claim(torch.sin, run, derivative=DerivativePair(forward, backward, fake), state=make),)
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    MADE.clear()


def used() -> list[list[str]]:
    return [state.seen for state in MADE if state.seen]


def test_each_line_has_its_own() -> None:
    program = thunder.jit(lambda x: torch.sin(torch.sin(x)), executors=[EXECUTOR])
    x = torch.randn(3)
    for _ in range(2):
        torch.testing.assert_close(program(x), torch.sin(torch.sin(x)))
    assert used() == [["run", "run"], ["run", "run"]]


def test_all_compilations_have_the_same() -> None:
    program = thunder.jit(lambda x: torch.sin(torch.sin(x)), executors=[EXECUTOR])
    for size in (3, 4, 5):
        program(torch.randn(size))
    assert used() == [["run"] * 3] * 2
    assert thunder.cache_misses(program) == 3


def test_forward_and_backward_share_it() -> None:
    program = thunder.jit(lambda x: torch.sin(torch.sin(x)).sum(), executors=[EXECUTOR])
    x = torch.randn(3, requires_grad=True)
    for _ in range(2):
        x.grad = None
        program(x).backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(torch.sin(torch.sin(x)).sum(), x)[0])
    assert used() == [["forward", "backward"] * 2] * 2
    with torch.no_grad():
        program(x)
    assert [seen[-1] for seen in used()] == ["run", "run"]


def test_equal_lines_with_states_are_not_merged() -> None:
    program = thunder.jit(lambda x: (torch.sin(x), torch.sin(x)), executors=[EXECUTOR])
    program(torch.randn(3))
    assert used() == [["run"], ["run"]]
