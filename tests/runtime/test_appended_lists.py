"""Lists that a program only appends to may be of any length: one entry serves all calls."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder


def test_a_list_that_grows_is_no_reason_to_compile_again() -> None:
    losses: list[torch.Tensor] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        losses.append(x.sum())
        return x * 2

    compiled = thunder.jit(program)
    for count in range(1, 6):
        x = torch.full((3,), float(count))
        assert torch.equal(compiled(x), x * 2)
        assert [loss.item() for loss in losses] == [3.0 * number for number in range(1, count + 1)]
    assert thunder.cache_misses(compiled) == 1


def test_activations_of_a_hook() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    kept: list[torch.Tensor] = []
    model[0].register_forward_hook(lambda module, inputs, output: kept.append(output.detach()))
    compiled = thunder.jit(model)
    for count in range(1, 4):
        x = torch.randn(2, 3)
        result = compiled(x)
        assert len(kept) == count
        assert torch.equal(result, kept[-1].relu())
    assert thunder.cache_misses(compiled) == 1


def test_a_list_that_is_read_is_guarded() -> None:
    seen: list[float] = [1.0]

    def program(x: torch.Tensor) -> torch.Tensor:
        note()
        return x * len(seen)

    def note() -> None:
        seen.append(2.0)

    compiled = thunder.jit(program)
    x = torch.arange(3.0)
    for count in range(2, 5):
        assert torch.equal(compiled(x), x * count)


class Box:
    """Holds a list that programs append to."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept


class Sums:
    """Appends otherwise than a list."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def append(self, value: torch.Tensor) -> None:
        self.items.append(value.sum())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def of_class(box: Box, x: torch.Tensor) -> torch.Tensor:
    if isinstance(box.kept, list):
        box.kept.append(x * 2)
    return x + 1


def of_type(box: Box, x: torch.Tensor) -> torch.Tensor:
    if type(box.kept) is list:
        box.kept.append(x * 2)
    return x + 1


def not_none(box: Box, x: torch.Tensor) -> torch.Tensor:
    if box.kept is not None and box.kept is not x:
        box.kept.append(x * 2)
    return x + 1


@pytest.mark.parametrize("program", [of_class, of_type, not_none])
def test_the_class_of_an_appended_list_is_guarded_and_not_its_content(program: Callable[..., torch.Tensor]) -> None:
    box = Box([])
    compiled = thunder.jit(lambda x: program(box, x))
    for count in range(1, 5):
        compiled(torch.ones(2))
        assert len(box.kept) == count
    assert thunder.cache_misses(compiled) == 1
    others: tuple[Callable[[], Any], ...] = (list, collections.deque, Sums, collections.UserList, lambda: None)
    for make in others:
        box.kept = make()
        result = compiled(torch.ones(2))
        expected = Box(make())
        assert torch.equal(result, program(expected, torch.ones(2)))
        kept, wanted = box.kept, expected.kept
        assert type(kept) is type(wanted)
        assert wanted is None or repr(list(kept)) == repr(list(wanted))
