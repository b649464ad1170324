"""Objects that a program creates and returns: references between them are those of eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder


class Node:
    """An object with attributes."""


class Text(str):
    """Text with attributes."""

    value: torch.Tensor


class Number(float):
    """A number with attributes."""

    value: torch.Tensor


GLOBAL = Text("global")
GLOBAL.value = torch.zeros(2)


class Pair:
    """An object whose state a function sets, the last item of what `__reduce_ex__` returns."""

    first: Any
    second: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Pair, (), [self.first, self.second], None, None, _set_pair


def _set_pair(pair: Pair, items: list[Any]) -> None:
    pair.first, pair.second = items


def tuple_in_its_list(x: torch.Tensor) -> Any:
    items: list[Any] = [x + 1]
    pair = (items, 2)
    items.append(pair)
    return pair


def set_in_its_item(x: torch.Tensor) -> Any:
    node: Any = Node()
    node.value = x + 1
    node.set = {node}
    return node.set


def slice_in_its_step(x: torch.Tensor) -> Any:
    step: list[Any] = [x + 1]
    result = slice(None, None, step)
    step.append(result)
    return result


@pytest.mark.parametrize(
    ("program", "holds"),
    [
        (tuple_in_its_list, lambda result: result[0][1] is result),
        (set_in_its_item, lambda result: next(iter(result)).set is result),
        (slice_in_its_step, lambda result: result.step[1] is result),
    ],
)
def test_a_cycle_has_one_object(program: Callable[[torch.Tensor], Any], holds: Callable[[Any], bool]) -> None:
    x = torch.ones(2)
    compiled = thunder.jit(program, executors=[])
    assert holds(program(x))
    first, second = compiled(x), compiled(x)
    assert holds(first)
    assert holds(second)
    assert first is not second


def test_a_function_sets_the_state() -> None:
    def program(x: torch.Tensor) -> Pair:
        pair = Pair()
        pair.first, pair.second = x + 1, "text"
        return pair

    result = thunder.jit(program, executors=[])(torch.ones(2))
    assert result.second == "text"
    assert torch.equal(result.first, torch.full((2,), 2.0))


@pytest.mark.parametrize("kind", [Text, Number])
def test_numbers_and_text_with_attributes(kind: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        result = kind("2.5")
        result.value = x + 1
        return result

    compiled = thunder.jit(program, executors=[])
    for x in (torch.ones(2), torch.zeros(2)):
        result = compiled(x)
        assert type(result) is kind
        assert result == kind("2.5")
        assert torch.equal(result.value, x + 1)


def test_global_text_with_attributes_is_the_same_object() -> None:
    compiled = thunder.jit(lambda x: (x + 1, GLOBAL), executors=[])
    for _ in range(2):
        assert compiled(torch.ones(2))[1] is GLOBAL


def test_an_int_that_is_too_long_to_print() -> None:
    compiled = thunder.jit(lambda x: (x + 1, 10**5000), executors=[])
    assert compiled(torch.ones(2))[1] == 10**5000
