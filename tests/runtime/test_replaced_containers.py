"""Containers that a program changes in place and replaces as well: each change is made once, to the right object."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

CALLS = (1.0, 2.0, 3.0, 4.0)


class Holder(nn.Module):
    """A module that changes one of its containers."""

    def __init__(self, change: Callable[[Any, torch.Tensor], Any], held: Any) -> None:
        super().__init__()
        self.change = change
        self.held = held

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(self, x)


def window(self: Any, x: torch.Tensor) -> Any:
    self.held.append(x * 2)
    self.held = self.held[-2:]
    return sum(self.held)


def copied(self: Any, x: torch.Tensor) -> Any:
    self.held.append(x * 2)
    self.held = list(self.held)
    return sum(self.held)


def joined(self: Any, x: torch.Tensor) -> Any:
    held = self.held
    held.append(x * 2)
    self.held = [*held, x]
    return sum(self.held)


def nested_in_new(self: Any, x: torch.Tensor) -> Any:
    held = self.held
    held.append(x * 2)
    self.held = [len(held), held] if len(held) < 3 else held
    return x


def plain_values(self: Any, x: torch.Tensor) -> Any:
    self.held.append(len(self.held))
    self.held = self.held[-2:]
    return x * len(self.held)


def dictionary(self: Any, x: torch.Tensor) -> Any:
    held = self.held
    self.held = {**held, len(held): x}
    held["old"] = x * 2
    return sum(self.held.values())


def dictionary_of_lists(self: Any, x: torch.Tensor) -> Any:
    self.held.setdefault("seen", []).append(x)
    self.held["seen"] = self.held["seen"][-2:]
    return sum(self.held["seen"])


@pytest.mark.parametrize(
    ("change", "held"),
    [
        (window, []),
        (copied, []),
        (joined, []),
        (nested_in_new, []),
        (plain_values, []),
        (dictionary, {}),
        (dictionary_of_lists, {}),
    ],
)
def test_calls_follow_each_other_as_in_eager(jit, change, held):
    eager, module = Holder(change, held), Holder(change, copy.deepcopy(held))
    compiled = jit(module)
    for value in CALLS:
        expected_before, before = eager.held, module.held
        expected, result = eager(torch.tensor(value)), compiled(torch.tensor(value))
        assert str(result) == str(expected)
        assert str(module.held) == str(eager.held)
        assert str(before) == str(expected_before)  # what the replaced container got
        assert (module.held is before) == (eager.held is expected_before)


def test_plain_values_of_a_closure(jit):
    def program(state: dict[str, list[int]]) -> Callable[[int], torch.Tensor]:
        def run(number: int) -> torch.Tensor:
            state["seen"].append(number)
            state["seen"] = state["seen"][-2:]
            return torch.ones(1) * sum(state["seen"])

        return run

    expected, state = {"seen": []}, {"seen": []}
    eager, compiled = program(expected), jit(program(state))
    for number in range(4):
        assert torch.equal(compiled(number), eager(number))
        assert state == expected


def test_exchanged_containers(jit):
    class Two:
        def __init__(self) -> None:
            self.left, self.right = [1], [2]

    def program(two, x):
        two.left.append(3)
        two.left, two.right = two.right, two.left
        two.left.append(4)
        return two.left, x + len(two.right)

    expected, two = Two(), Two()
    compiled = jit(program)
    for _ in range(3):
        left, right = two.left, two.right
        result, expected_result = compiled(two, torch.ones(1)), program(expected, torch.ones(1))
        assert (two.left, two.right) == (expected.left, expected.right)
        assert two.left is right
        assert two.right is left
        assert result[0] is two.left
        assert torch.equal(result[1], expected_result[1])


def test_replaced_objects(jit):
    class Part:
        def __init__(self) -> None:
            self.count = 0

    class Whole:
        def __init__(self) -> None:
            self.part = Part()

    def program(whole, x):
        old = whole.part
        old.count += 1
        whole.part = Part()
        whole.part.count = 5
        return old, x * 2

    whole, compiled = Whole(), jit(program)
    for count in (1, 6, 6):
        before = whole.part
        old, _ = compiled(whole, torch.ones(1))
        assert old is before
        assert (before.count, whole.part.count) == (count, 5)


def test_returned_object_that_was_replaced(jit):
    def program(held, x):
        old = held["list"]
        held["list"] = [x]
        return old

    held, compiled = {"list": []}, jit(program)
    for _ in range(3):
        before = held["list"]
        assert compiled(held, torch.ones(1)) is before
