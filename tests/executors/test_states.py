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
    program = thunder.jit(lambda x: torch.sin(torch.sin(x)), executors=[EXECUTOR], dynamic=False)
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


def test_equal_ops_with_states_are_not_merged() -> None:
    program = thunder.jit(lambda x: (torch.sin(x), torch.sin(x)), executors=[EXECUTOR])
    program(torch.randn(3))
    assert used() == [["run"], ["run"]]


class Counter:
    """A state that is saved, and knows its companions."""

    def __init__(self) -> None:
        self.count = torch.zeros(())
        self.companions: list[Any] = []

    def joins(self, companions: list[Any]) -> None:
        self.companions = companions

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"count": self.count}

    def load_state_dict(self, entries: dict[str, torch.Tensor]) -> None:
        self.count.copy_(entries["count"])


class Named:
    """A factory that names states by the argument of the line."""

    def __init__(self) -> None:
        self.made: list[Counter] = []

    def __call__(self, line: Any) -> Counter:
        self.made.append(Counter())
        return self.made[-1]

    def name(self, line: Any) -> str:
        return str(line.args[0].name)


def counted(state: Counter, input: torch.Tensor) -> torch.Tensor:
    state.count += 1
    return torch.sin(input)


class Sines(torch.nn.Module):
    """Three of them, of a parameter and of a result."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self) -> torch.Tensor:
        return torch.sin(self.weight) + torch.sin(torch.sin(self.weight))


def sines() -> tuple[Any, Named]:
    factory = Named()
    executor = OperatorExecutor("counting", (Claim(torch.sin, counted, state=factory),))
    return thunder.jit(
        Sines(), executors=[executor], transforms=[{"common_subexpression": {"enabled": False}}]
    ), factory


KEYS = [f"executor_states.counting.{name}.count" for name in ("module_weight", "module_weight #2", "t1")]


def test_states_with_names_are_in_state_dicts() -> None:
    program, factory = sines()
    assert list(program.state_dict()) == ["weight"]
    for _ in range(2):
        program()
    state = program.state_dict()
    assert sorted(state) == sorted(["weight", *KEYS])
    assert [float(state[key]) for key in KEYS] == [2, 2, 2]
    assert all(one.companions == factory.made for one in factory.made)
    other, _ = sines()
    assert not other.load_state_dict(state).unexpected_keys
    assert other.state_dict().keys() == state.keys()  # also before there are states
    other()
    assert [float(other.state_dict()[key]) for key in KEYS] == [3, 3, 3]
    other.load_state_dict({"weight": state["weight"]})
    assert float(other.state_dict()[KEYS[0]]) == 3
    other.load_state_dict(state)
    assert float(other.state_dict()[KEYS[0]]) == 2
    with pytest.raises(RuntimeError, match="Unexpected key"):
        Sines().load_state_dict(state)


def test_also_of_a_module_inside_of_another() -> None:
    program, _ = sines()
    program()
    state = torch.nn.ModuleDict({"inner": program}).state_dict()
    assert sorted(state) == sorted(f"inner.{name}" for name in ["weight", *KEYS])
    other, _ = sines()
    torch.nn.ModuleDict({"inner": other}).load_state_dict(state)
    other()
    assert [float(other.state_dict()[key]) for key in KEYS] == [2, 2, 2]


def test_where_the_device_chooses_executors_their_states_wait_for_them() -> None:
    program, _ = sines()
    program()
    state = program.state_dict()
    chosen = thunder.jit(Sines())
    assert not chosen.load_state_dict(state).unexpected_keys
    assert chosen.state_dict().keys() == state.keys()
    with pytest.raises(RuntimeError, match="Unexpected key"):
        thunder.jit(Sines(), executors=[]).load_state_dict(state)
