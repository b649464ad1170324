"""Writes with gradients to tensors without: whatever shares their history requires grad from then on, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__] = function
    return function


def flags(*tensors: torch.Tensor) -> tuple[tuple[bool, bool], ...]:
    return tuple((tensor.requires_grad, tensor.is_leaf) for tensor in tensors)


@program
def write_through_a_view(x: Any, y: Any) -> Any:
    t = x.sin()
    t.unsqueeze(0).squeeze(0).add_(y)
    return t, flags(t)


@program
def result_without_a_gradient(x: Any, y: Any) -> Any:
    t = x.sin()
    t.unsqueeze(0).squeeze(0).add_(y)
    return torch.tanh(x), t * 2


@program
def base_is_detached(x: Any, y: Any) -> Any:
    t = x.sin()
    t.view(6).view(2, 3).add_(y)
    return torch.add(t.detach(), x, out=torch.empty(2, 3)), t.detach(), flags(t.detach())


@program
def base_is_detached_and_written(x: Any, y: Any) -> Any:
    t = x.sin()
    t[0].add_(y[0])
    t.detach().mul_(3)
    return t * 2, t.sin()


@program
def data_of_the_base_is_written_after_autograd_saved_it(x: Any, y: Any) -> Any:
    t = x.sin()
    t.unsqueeze(0).squeeze(0).add_(y)
    u = t.sin()
    t.data.mul_(3)
    return u


@program
def hook_on_the_base(x: Any, y: Any) -> Any:
    t = x.sin()
    t[0].add_(y[0])
    if t.requires_grad:
        t.register_hook(lambda g: g * 10)
    return t * 2


@program
def siblings(x: Any, y: Any) -> Any:
    t = x.sin()
    first, second, third = t.view(6), t.view(3, 2), t.detach()
    second.add_(y.view(3, 2))
    return first.sin(), second * 2, third, t, flags(first, second, third, t)


@program
def siblings_of_calls_that_were_made_before(x: Any, y: Any) -> Any:
    results: list[torch.Tensor] = []
    for _ in range(3):
        t = x.sin()
        view, detached = t.view(6), t.detach()
        further = view.view(3, 2)
        t.add_(y)
        results += [further.sin(), detached * 2, view.clone()]
    return tuple(results), flags(*results)


@program
def integers_in_the_memory(x: Any, y: Any) -> Any:
    t = x.sin()
    bits = t.view(torch.int32)
    t.add_(y)
    return bits + 1, t, flags(bits, t)


@program
def write_by_setitem_and_a_block_without_gradients(x: Any, y: Any) -> Any:
    t = x.sin()
    t[0][1:] = y[0][1:]
    with torch.no_grad():
        u = t * 2
    v = t.detach().clone()
    v[1] = t[1]
    return u, v * 3, t, flags(u, v, t)


@program
def foreach(x: Any, y: Any) -> Any:
    t = x.sin()
    view = t.view(6)
    torch._foreach_add_([view], [y.view(6)])
    return t * 2, view.sin(), flags(t)


@program
def input_is_written(x: Any, y: Any) -> Any:
    x.view(6).add_(y.view(6))
    return x * 2, flags(x)


@program
def in_a_checkpoint(x: Any, y: Any) -> Any:
    t = x.sin()

    def region(a: Any) -> Any:
        u = t.cos()
        u.view(6).add_(a.view(6))
        return u.sin() * t

    return checkpoint(region, y, use_reentrant=False), t


@program
def across_a_checkpoint(x: Any, y: Any) -> Any:
    t = x.sin()

    def region(a: Any) -> Any:
        t.view(6).add_(a.view(6))
        return a.cos()

    return checkpoint(region, y, use_reentrant=False), t * 2, t.detach(), flags(t, t.detach())


@program
def requires_grad_is_set(x: Any, y: Any) -> Any:
    t = x.sin().detach()
    view = t.view(6)
    t.requires_grad_()
    flag = view.requires_grad
    return (t * y).sum() * 2, flag


def outcome(function: Callable[..., Any]) -> list[Any]:
    x = torch.linspace(-1, 1, 6).view(2, 3)
    y = torch.linspace(0.5, 2, 6).view(2, 3).requires_grad_()
    leaves = torch.utils._pytree.tree_leaves(function(x, y))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    shown = [(tensor.requires_grad, tensor.is_leaf) for tensor in tensors]
    numbers = [torch.linspace(0.1, 1, tensor.numel()).view(tensor.shape) for tensor in tensors]
    total = [(tensor * number).sum() for tensor, number in zip(tensors, numbers, strict=True) if tensor.grad_fn]
    if total:
        torch.stack(total).sum().backward()
    plain = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    return [plain, shown, x.requires_grad, [tensor.detach() for tensor in tensors], x.detach(), y.grad]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_histories_are_those_of_eager(name: str) -> None:
    function = PROGRAMS[name]
    expected, actual = outcome(function), outcome(thunder.jit(function, executors=[]))
    assert actual[:3] == expected[:3]
    torch.testing.assert_close(actual[3:], expected[3:])
