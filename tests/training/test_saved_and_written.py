"""Values that backward needs and that the program writes later: gradients are those of what forward used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import allow_mutation_on_saved_tensors
from torch.utils._python_dispatch import TorchDispatchMode

from tests.subjects import SUBJECT
from tests.training.steps import assert_same, check, leaf, loss_of

Program = Callable[[torch.Tensor, torch.Tensor], Any]


def argument(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = x * 2
    y = h.sin() * h
    h.mul_(3)
    return y, h


def result(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x.exp()
    z = y.softmax(-1)
    y[0] = 5
    return z.add_(1), y


def input_of_the_program(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * w[0] + (x @ w.t()).sum()
    w.mul_(2)
    return y


def part(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = x * 1
    y = h[0].sin()
    h[1].mul_(2)
    return y, h


def behind_autograd(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = x * 2
    y = h.sin()
    with torch.no_grad():
        h.mul_(3)
    z = h.cos()
    h.detach().add_(1)
    return y, z, h


def indices(x: torch.Tensor, w: torch.Tensor) -> Any:
    index = torch.tensor([0, 2])
    y = x[index] + F.embedding(index, x)
    values, order = x.sort(1)
    index.zero_()
    order.zero_()
    return y, values


def mask(x: torch.Tensor, w: torch.Tensor) -> Any:
    chosen = w > 0
    y = torch.where(chosen, x, x * 2).masked_fill(chosen, 1.0)
    chosen.logical_not_()
    return y


def layers(x: torch.Tensor, w: torch.Tensor) -> Any:
    h = x * 1
    y = F.layer_norm(F.linear(h, w), (3,)) + F.gelu(h)[:, :3] + h.std()
    w.add_(1)
    h.zero_()
    return y


@pytest.mark.parametrize(
    "program", [argument, result, input_of_the_program, part, behind_autograd, indices, mask, layers]
)
def test_gradients_of_what_forward_used(program: Program) -> None:
    """Eager raises an error in backward, unless it keeps copies of saved tensors."""
    x, w = torch.randn(3, 4), torch.randn(3, 4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _gradient(program, x, w)
    with allow_mutation_on_saved_tensors(), _Keeping():
        expected = _gradient(program, x, w)
    torch.testing.assert_close(_gradient(SUBJECT(program), x, w), expected)


class _Keeping(TorchDispatchMode):
    """Keeps all tensors alive: PyTorch finds its copies of saved tensors by `id`, which others would have later."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._kept.append((args, result))
        return result


def _gradient(program: Program, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(program(x, w.clone())), x)
    return gradient


@pytest.mark.parametrize("write", [lambda w: w.add_(1), lambda w: w[0].zero_(), lambda w: w.detach().mul_(2)])
def test_caller_writes_before_backward(write: Callable[[torch.Tensor], Any]) -> None:
    compiled = SUBJECT(torch.mul)
    x, w = leaf(3, 4), torch.randn(3, 4)
    y = compiled(x, w)
    write(w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def value_in_inference_mode(x: torch.Tensor) -> Any:
    h = x * 2
    view = h[0]
    with torch.inference_mode():
        h.mul_(3)
        view[1:].add_(1)
        apart = h + 1
    return h * h, view, apart


def leaf_in_inference_mode(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        x.mul_(2)
    return x * x


@pytest.mark.parametrize("program", [value_in_inference_mode, leaf_in_inference_mode])
def test_writes_in_inference_mode(program: Callable[..., Any]) -> None:
    check(program, lambda: (leaf(3, 4),))


class Average(torch.nn.Module):
    """Counts what it sees as some models do, in inference mode."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        with torch.inference_mode():
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            self.mean[0] += 1
        return y * self.mean


def test_buffer_that_is_written_in_inference_mode() -> None:
    def scenario(model: Any) -> Any:
        losses = []
        for _ in range(2):
            loss = loss_of(model(torch.randn(3, 4)))
            loss.backward()
            losses.append(loss.detach())
        return losses, model.mean.is_inference()

    assert_same(Average, scenario)


def test_inference_tensor_that_is_written_in_inference_mode() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            x.mul_(3)
        return x + 1

    with torch.inference_mode():
        x, y = torch.ones(3), torch.ones(3)
    torch.testing.assert_close(SUBJECT(program)(x), program(y))
    torch.testing.assert_close(x, y)
