"""Programs that read, set and delete `.grad` of tensors that have gradients, and change these tensors between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import UnsupportedError

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def delete(w: Any, x: Any, y: Any) -> Any:
    del w.grad
    return w * 2, w.grad is None


@program
def delete_of_another_memory(w: Any, x: Any, y: Any) -> Any:
    w.data = x * 1
    del w.grad
    return w * 2, w.grad is None


@program
def delete_of_a_result(w: Any, x: Any, y: Any) -> Any:
    z = w * 1
    z.retain_grad()
    z.sum().backward()
    first = z.grad
    del z.grad
    return z.grad is None, first * 2, w.grad * 1


@program
def read_after_data(w: Any, x: Any, y: Any) -> Any:
    w.data = x * 1
    gradient = w.grad
    return w * 2, gradient * 3, gradient is None


@program
def reset_after_data(w: Any, x: Any, y: Any) -> Any:
    w.data = x * 1
    if w.grad is not None:
        w.grad = None
    (w * y).sum().backward()
    return w * 2, w.grad * 3


@program
def zero_after_data(w: Any, x: Any, y: Any) -> Any:
    w.data = x * 1
    if w.grad is not None:
        w.grad.zero_()
    return w * 2, w.grad * 1


@program
def optimizer_after_data(w: Any, x: Any, y: Any) -> Any:
    optimizer = torch.optim.SGD([w], lr=0.1)
    w.data = x * 2.0
    optimizer.zero_grad()
    (x * w).sum().backward()
    optimizer.step()
    return w * 1


@program
def write_and_a_backward_of_others(w: Any, x: Any, y: Any) -> Any:
    with torch.no_grad():
        w.mul_(2)
    (y * x).sum().backward()
    return (w * 2, w.grad * 3) if w.grad is not None else (w * 5, w * 1)


@program
def frozen_for_a_while(w: Any, x: Any, y: Any) -> Any:
    w.requires_grad_(False)
    gradient = w.grad
    w.requires_grad_(True)
    return w * 2, w * 7 if gradient is None else w * gradient


@program
def set_and_reset(w: Any, x: Any, y: Any) -> Any:
    w.grad = x * 3
    w.data = x * 1
    gradient = w.grad
    w.grad = None
    return gradient * 2, w * 1, w.grad is None


@program
def identity(w: Any, x: Any, y: Any) -> Any:
    value = x * 2
    w.grad = value
    same = w.grad is value
    w.grad = None
    (w * x).sum().backward()
    return value * 1, same, w.grad is w.grad, w.grad is value


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_eager(name: str) -> None:
    found = []
    for function in (PROGRAMS[name], thunder.jit(PROGRAMS[name], executors=[])):
        w = torch.nn.Parameter(torch.linspace(0, 1, 6).view(2, 3))
        w.grad = torch.full((2, 3), 0.5)
        x = torch.linspace(1, 2, 6).view(2, 3)
        y = torch.linspace(0.5, 2, 6).view(2, 3).requires_grad_()
        calls = []
        for _ in range(3):
            results = function(w, x, y)
            leaves = results if isinstance(results, tuple) else (results,)
            total = [leaf.sum() for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
            if total:
                torch.stack(total).sum().backward()
            values = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            calls.append(([values, w.detach().clone()], None if w.grad is None else w.grad.clone()))
        found.append(calls)
    for one, other in zip(*found, strict=True):
        assert str(other) == str(one)


def test_properties_that_are_not_understood_are_refused() -> None:
    def assign(w: torch.Tensor) -> torch.Tensor:
        w._backward_hooks = None
        return w * 2

    with pytest.raises(UnsupportedError, match=r"assigns to the property `_backward_hooks`"):
        thunder.jit(assign)(torch.ones(3, requires_grad=True))
