"""Hooks that programs set on tensors: on which values, when they are called, what they make of gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.autodiff.test_hooks import tensors
from tests.training.steps import assert_same, detached, leaf


class Note:
    """A hook that notes gradients, and scales them."""

    def __init__(self, factor: float | None = None) -> None:
        self.factor = factor
        self.seen: list[Any] = []

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor | None:
        self.seen.append(detached(gradient))
        return None if self.factor is None else gradient * self.factor


def _uses_before_and_after(x: torch.Tensor, note: Any, other: Any) -> Any:
    y = x.sin()
    z = y.exp()
    y.register_hook(note)
    y.register_hook(other)
    return z + y.cos()


def _returned(x: torch.Tensor, note: Any, other: Any) -> Any:
    y = x.sin()
    y.register_hook(note)
    return y, y * 2


def _after_a_write(x: torch.Tensor, note: Any, other: Any) -> Any:
    y = x.sin()
    y.register_hook(note)
    y.mul_(3)
    y.register_hook(other)
    return y.exp()


def _of_a_view(x: torch.Tensor, note: Any, other: Any) -> Any:
    y = x.sin()
    z = y.view(-1)
    z.register_hook(note)
    y.register_hook(other)
    return z.exp().sum() + y.sum()


def _of_a_view_that_is_returned(x: torch.Tensor, note: Any, other: Any) -> Any:
    y = x.sin()
    z = y.view(-1)
    z.register_hook(note)
    return y, z, z.exp()


def _of_a_view_that_alone_is_returned(x: torch.Tensor, note: Any, other: Any) -> Any:
    z = x.sin().view(-1)
    z.register_hook(note)
    return z


def _of_a_view_of_which_a_view_is_returned(x: torch.Tensor, note: Any, other: Any) -> Any:
    y = x.sin()
    z = y.view(-1)
    z.register_hook(note)
    y.register_hook(other)
    return z.unsqueeze(0)


def _of_a_part_that_is_returned(x: torch.Tensor, note: Any, other: Any) -> Any:
    two = x.sin().chunk(2, 1)[1]
    two.register_hook(note)
    return two


def _of_a_part(x: torch.Tensor, note: Any, other: Any) -> Any:
    one, two = x.sin().chunk(2, 1)
    two.register_hook(note)
    one.register_hook(other)
    return one * two


def _not_reached(x: torch.Tensor, note: Any, other: Any) -> Any:
    y = x.sin()
    y.register_hook(note)
    return x * 2


def _of_the_input(x: torch.Tensor, note: Any, other: Any) -> Any:
    x.register_hook(note)
    return x.sin().exp()


def _by_keyword(x: torch.Tensor, note: Any, other: Any) -> Any:
    y = x.sin()
    y.register_hook(hook=note)
    return y.exp()


PROGRAMS = [
    _uses_before_and_after,
    _returned,
    _after_a_write,
    _of_a_view,
    _of_a_view_that_is_returned,
    _of_a_view_that_alone_is_returned,
    _of_a_view_of_which_a_view_is_returned,
    _of_a_part_that_is_returned,
    _of_a_part,
    _not_reached,
    _of_the_input,
    _by_keyword,
]


@pytest.mark.parametrize("factor", [None, 3.0])
@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__.strip("_"))
@pytest.mark.battery
def test_tensor_hooks(program: Any, is_leaf: bool, factor: float | None) -> None:
    def scenario(function: Any) -> Any:
        note, other = Note(factor), Note()
        x = leaf(2, 4)
        for _ in range(3):
            result = function(x if is_leaf else x * 2, note, other)
            sum(item.square().sum() for item in tensors((result,))).backward()
        return x.grad, note.seen, other.seen

    assert_same(lambda: program, scenario)


def test_tensor_hooks_on_the_way_to_what_is_asked_for() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, note: Any, other: Any) -> Any:
        one, two = x.sin(), y.cos()
        one.register_hook(note)
        two.register_hook(other)
        return one * two, two.exp()

    def scenario(function: Any) -> Any:
        note, other = Note(), Note()
        x, y = leaf(3), leaf(3)
        product, power = function(x, y, note, other)
        found = [torch.autograd.grad(product.sum(), [asked], retain_graph=True) for asked in (x, y)]
        found.append(torch.autograd.grad(power.sum(), [y, x], allow_unused=True))
        return detached(found), note.seen, other.seen

    assert_same(lambda: program, scenario)


def test_second_derivatives_through_tensor_hooks() -> None:
    def program(x: torch.Tensor, note: Any) -> torch.Tensor:
        x.register_hook(note)
        y = x.sin()
        y.register_hook(note)
        return y.exp().sum()

    def scenario(function: Any) -> Any:
        note = Note(2.0)
        x = leaf(3)
        (gradient,) = torch.autograd.grad(function(x, note), [x], create_graph=True)
        gradient.sum().backward()
        return x.grad, gradient.detach(), note.seen

    assert_same(lambda: program, scenario)
