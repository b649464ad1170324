"""Writes inside the program to intermediates, inputs and their views, with gradients through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from tests.subjects import SUBJECT
from tests.training.steps import assert_same, check, leaf, loss_of, raised
from thunder_core.errors import UnsupportedError


def relu_(x: torch.Tensor) -> Any:
    return (x * 2).relu_() + x


def add_(x: torch.Tensor) -> Any:
    y = x.sin()
    y.add_(x).mul_(x)
    return y


def masked(x: torch.Tensor) -> Any:
    y = x * 2
    y[x > 0] = 0
    return y * x


def masked_by_values(x: torch.Tensor) -> Any:
    y = x * 2
    y[x > 0] = x.cos().sum()
    return y.masked_fill_(x < -1, 0.5)


def column(x: torch.Tensor) -> Any:
    y = x.clone()
    y[:, 0] = x[:, 1] * 3
    y[1] += x[0]
    return y.exp()


def view_chain(x: torch.Tensor) -> Any:
    y = x * 1
    v = y.t()[1:].reshape(3, 3)
    y.view(2, 6)[0, 1:].mul_(x[0, 0])
    return y, v


def base_after_view(x: torch.Tensor) -> Any:
    y = x * 1
    v = y[0]
    y.mul_(x)
    return v * 2, y


def out_argument(x: torch.Tensor) -> Any:
    y = torch.empty(3, 4)
    torch.sin(x.detach(), out=y)
    return y * x


def index_put(x: torch.Tensor) -> Any:
    y = torch.zeros(5, 4)
    y.index_add_(0, torch.tensor([0, 2, 0]), x)
    y.index_put_((torch.tensor([1, 3]),), x[:2], accumulate=True)
    return y.scatter_(1, torch.tensor([[0], [1]]), x[:2, :1])


def through_no_grad(x: torch.Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    return y + x


def through_detach(x: torch.Tensor) -> Any:
    y = x * 2
    y.detach().zero_()
    return y + x


def detach_in_place(x: torch.Tensor) -> Any:
    y = (x * 2).detach_()
    return y, y * x


def detach_after_a_view_is_gone(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.view(-1) * x.view(-1)
    return y.detach_() * x, z


def buffer_filled_by_steps(x: torch.Tensor) -> Any:
    history = torch.zeros(3, 3, 4)
    for step in range(3):
        history[step] = x * step if step == 0 else history[step - 1] + x
    return history


def copy_between(x: torch.Tensor) -> Any:
    y = torch.zeros(3, 4, dtype=torch.float64)
    y.copy_(x)
    y[:, :2].copy_(x[:, 2:])
    return y


def functional_in_place(x: torch.Tensor) -> Any:
    return F.leaky_relu(F.dropout(x * 2, 0.5, inplace=True) + 1, 0.1, inplace=True)


PROGRAMS = [
    relu_, add_, masked, masked_by_values, column, view_chain, base_after_view, out_argument, index_put,
    through_no_grad, through_detach, detach_in_place, detach_after_a_view_is_gone,
    buffer_filled_by_steps, copy_between, functional_in_place,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_inside(program: Callable[..., Any]) -> None:
    check(program, lambda: (leaf(3, 4),))


INDEX = torch.tensor([0, 1])
OVERLAPPING: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda y: y[1:].add_(y[:-1]),
    "index_copy": lambda y: y.index_copy_(0, INDEX, y[1:]),
    "index_add": lambda y: y.index_add_(0, INDEX, y[1:]),
    "index_put": lambda y: y.index_put_((INDEX,), y[1:]),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", OVERLAPPING)
def test_write_to_a_part_of_what_is_read(name: str, requires_grad: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        OVERLAPPING[name](y)
        return y

    x = leaf(3, 4).detach().requires_grad_(requires_grad)
    assert raised(lambda: thunder.jit(program)(x)) == raised(lambda: program(x)) == "RuntimeError"


@pytest.mark.parametrize("requires_grad", [False, True])
def test_an_assignment_to_other_elements_than_it_reads(requires_grad: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        y[2] = y[0]
        y[:, 1] = y[:, 3]
        return y

    check(program, lambda: (leaf(3, 4).detach().requires_grad_(requires_grad),))


def test_detach_of_a_tensor_with_views_is_refused() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        view = y.view(-1)
        y.detach_()
        return y, view

    with pytest.raises(UnsupportedError, match=r"views require grad(.|\n)*y\.detach_\(\)(.|\n)*y = x\.detach\(\)"):
        thunder.jit(program)(leaf(3, 4))


def test_value_that_is_saved_and_written() -> None:
    """Eager refuses in backward. A compiled program may do so too, or use the value that was saved; nothing else."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return y + y.mul_(2)

    x = leaf(3, 4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        program(x).sum().backward()
    for _ in range(2):
        x = leaf(3, 4)
        output = SUBJECT(program)(x)
        torch.testing.assert_close(output, 4 * x.exp())
        if raised(output.sum().backward) is None:
            torch.testing.assert_close(x.grad, 4 * x.exp().detach())
        else:
            assert x.grad is None


def write_input(x: torch.Tensor) -> Any:
    return x.mul_(2).sin()


def write_view_of_input(x: torch.Tensor) -> Any:
    y = x.clone()
    x[0].mul_(2).add_(y[1].sin())
    return x.exp()


def write_input_only(x: torch.Tensor) -> None:
    x[:, 1:] = x[:, :-1].clone().sin()


def write_input_from_detached(x: torch.Tensor) -> Any:
    x.detach()[0] = 5.0
    return x * 2


def write_input_twice(x: torch.Tensor) -> Any:
    y = x.t()
    x.add_(1)
    y[0].mul_(2)
    return y, x.sum()


def write_then_return_view(x: torch.Tensor) -> Any:
    x.neg_()
    return x[1:], x


def write_input_by_autograd(x: torch.Tensor) -> Any:
    """Calls whose derivative is PyTorch's autograd's, recorded while the program runs."""
    return x.sin_().clamp_(min=-0.9).sigmoid_() * 2


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 3


def write_input_after_own_function(x: torch.Tensor) -> Any:
    y = Tripled.apply(x)
    x.add_(1)
    return y


WRITERS = [
    write_input, write_view_of_input, write_input_only, write_input_from_detached, write_input_twice,
    write_then_return_view, write_input_by_autograd, write_input_after_own_function,
]  # fmt: skip


@pytest.mark.parametrize("kind", ["no leaf", "plain", "view", "view of plain"])
@pytest.mark.parametrize("program", WRITERS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_input_that_is_written(program: Callable[..., Any], kind: str) -> None:
    """Gradients flow to what was there before the write, and through the input after it."""

    def scenario(function: Any) -> Any:
        seen = []
        for _ in range(2):
            source = torch.randn(4, 4, requires_grad=kind in ("no leaf", "view"))
            base = source * 1
            x = base[1:] if kind.startswith("view") else base[1:] * 1
            outputs = function(x)
            flags = x.requires_grad, base.requires_grad, x.is_leaf, x._version > 0
            loss = loss_of((outputs, x * 3, base * 2))
            seen.append((flags, raised(loss.backward) if loss.requires_grad else None, source, x.detach().clone()))
        return seen

    assert_same(lambda: program, scenario)


@pytest.mark.parametrize("program", WRITERS, ids=lambda program: program.__name__)
def test_leaf_that_is_written(program: Callable[..., Any]) -> None:
    """An error as eager's, and nothing written."""

    def scenario(function: Any) -> Any:
        x = leaf(3, 4)
        error = raised(lambda: function(x))
        with torch.no_grad():
            return error, x.clone(), raised(lambda: function(x)), x.clone()

    assert_same(lambda: program, scenario)


def test_value_that_brings_a_gradient_to_a_plain_input() -> None:
    def scenario(function: Any) -> Any:
        x, y = torch.zeros(3, 4), leaf(4)
        result = function(x, y)
        flags = x.requires_grad, x.is_leaf
        (x.sum() * 2 + result.sum()).backward()
        return flags, y

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        x[1] = y.sin()
        return x * 2

    assert_same(lambda: program, scenario)


@pytest.mark.parametrize("recorded", [True, False])
def test_inputs_that_are_views_of_one_tensor(recorded: bool) -> None:
    """What is written to one brings its gradient to the other; an error, as eager's, where autograd saw no views."""

    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        x[..., 0] = z.sum()
        return y * 2, x + 1, y.clone()

    def scenario(function: Any) -> Any:
        z = leaf(3, 4)
        with torch.set_grad_enabled(recorded):
            part = torch.zeros(6, 8)[::2, 1:5]
            x = part.t()
        results: list[Any] = []
        error = raised(lambda: results.extend(function(x, part, z)))
        if error is None:
            loss_of((*results, part, x)).backward()
        return error, [value.requires_grad for value in (*results, x, part)], z

    assert_same(lambda: program, scenario)


class Cache(nn.Module):
    """A buffer that is written with values that require grad, as a key-value cache in training is."""

    def __init__(self, detach: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.detach = detach
        self.register_buffer("cache", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if self.detach:
            self.cache = self.cache.detach() * 0.5 + y.detach().mean(0)
        else:
            self.cache[0] = y.mean(0)
        return y * self.cache.sum()


@pytest.mark.parametrize("detach", [True, False])
def test_buffer_that_is_written(detach: bool) -> None:
    def scenario(model: Any) -> Any:
        errors = []
        for _ in range(3):
            output = model(torch.randn(3, 4))
            errors.append(raised(output.square().mean().backward))
        return errors, model.cache.requires_grad

    assert_same(lambda: Cache(detach), scenario)
