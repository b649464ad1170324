"""Hooks that hold tensors which the program computes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import UnsupportedError

weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
seen: list[torch.Tensor] = []


def closure(x: torch.Tensor) -> Any:
    scale, y = x.exp(), x * 2
    y.register_hook(lambda gradient: gradient * scale)
    return (y * weight).sum()


def nested(x: torch.Tensor) -> Any:
    scale, y = x.sin(), x * 2

    def outer(gradient: torch.Tensor) -> torch.Tensor:
        def inner(value: torch.Tensor) -> torch.Tensor:
            return value * scale

        return inner(gradient)

    y.register_hook(outer)
    return (y * weight).sum()


def default(x: torch.Tensor) -> Any:
    scale, y = x.cos(), x * 2
    y.register_hook(lambda gradient, scale=scale: gradient + scale)
    return (y * weight).sum()


def partial(x: torch.Tensor) -> Any:
    y = x * 2
    y.register_hook(functools.partial(torch.add, x.cos()))
    return (y * weight).sum()


def several(x: torch.Tensor) -> Any:
    first = x.exp()
    second = first * 2
    y = x * 2
    y.register_hook(lambda gradient: gradient * first)
    y.register_hook(lambda gradient: gradient + first + second)
    z = y * 3
    z.register_hook(lambda gradient: gradient - y)
    return (z * weight).sum()


def of_itself(x: torch.Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda gradient: gradient * y.detach())
    z = y + 1
    return (z * y * weight).sum()


def of_an_argument(x: torch.Tensor) -> Any:
    y = x.sin()
    x.register_hook(lambda gradient: gradient + y)
    return y.sin().sum()


def replaced(x: torch.Tensor) -> Any:
    captured = x * x + 1
    x.register_hook(lambda _: captured)
    return (x * x).sum()


def noted(x: torch.Tensor) -> Any:
    shift, y = x.detach() + 1, x * 2
    y.register_hook(lambda gradient: seen.append((gradient + shift).detach()))
    return (y * weight).sum()


def memory_is_used_again(x: torch.Tensor) -> Any:
    scale = x.detach() * 3
    y = x * 2
    y.register_hook(lambda gradient: gradient * scale)
    return (y * (scale + 1).exp() * weight).sum()


def in_a_checkpoint(x: torch.Tensor) -> Any:
    def body(x: torch.Tensor) -> torch.Tensor:
        scale, y = x.exp(), x * 2
        y.register_hook(lambda gradient: gradient * scale)
        return y.sin()

    return checkpoint(body, x, use_reentrant=False).sum()


PROGRAMS = [
    *(closure, nested, default, partial, several, of_itself, of_an_argument, replaced, noted, memory_is_used_again),
    in_a_checkpoint,
]


def outcomes(program: Callable[..., Any]) -> list[Any]:
    results: list[Any] = []
    for seed in range(3):
        seen.clear()
        weight.grad = None
        torch.manual_seed(seed)
        x = torch.randn(3, requires_grad=True)
        loss = program(x)
        loss.backward(retain_graph=True)
        first = x.grad.clone()
        loss.backward()
        results.append((loss.detach(), first, x.grad, weight.grad, list(seen)))
    return results


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.slow
def test_hook_that_holds_computed_tensors(program: Callable[..., Any]) -> None:
    torch.testing.assert_close(outcomes(thunder.jit(program)), outcomes(program))


def test_calls_that_overlap_have_hooks_of_their_own() -> None:
    compiled = thunder.jit(closure)
    inputs = [torch.randn(3, requires_grad=True) for _ in range(3)]
    others = [x.detach().clone().requires_grad_() for x in inputs]
    for losses in ([compiled(x) for x in inputs], [closure(x) for x in others]):
        for loss in reversed(losses):
            loss.backward()
    for x, other in zip(inputs, others, strict=True):
        torch.testing.assert_close(x.grad, other.grad)


def test_hook_that_changes_a_list_of_the_program() -> None:
    def program(x: torch.Tensor) -> Any:
        gradients: list[Any] = ["first"]
        shift, y = x.exp(), x * 2
        y.register_hook(lambda gradient: gradients.append(gradient + shift))
        x.register_hook(lambda gradient: gradients.append(len(gradients)))
        return (y * weight).sum(), gradients

    for function in (program, thunder.jit(program)):
        kept = []
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(3, requires_grad=True)
            loss, gradients = function(x)
            assert gradients == ["first"]
            loss.backward()
            first, gradient, count = gradients
            assert (first, count) == ("first", 2)
            torch.testing.assert_close(gradient, (weight + x.exp()).detach(), check_stride=False)
            kept.append(gradients)
        assert len(set(map(id, kept))) == len(kept)


def changes_a_list(x: torch.Tensor) -> Any:
    seen: list[Any] = []
    y = x * 2
    y.register_hook(lambda gradient: seen.append(gradient))
    seen.append(1)
    return y.sum(), seen


def reads_a_list(x: torch.Tensor) -> Any:
    seen: list[Any] = []
    y = x.detach().requires_grad_()
    y.register_hook(lambda gradient: seen.append(gradient))
    (y * y).sum().backward()
    return x.sum() * seen[0]


def writes_what_a_hook_holds(x: torch.Tensor) -> Any:
    scale, y = x.detach() + 1, x * 2
    y.register_hook(lambda gradient: gradient * scale)
    scale.mul_(3)
    return y.sum()


def writes_it_in_a_region(x: torch.Tensor) -> Any:
    def body(x: torch.Tensor) -> torch.Tensor:
        scale, y = torch.ones(()), x * 2
        y.register_hook(lambda gradient: gradient * scale)
        scale.add_(1)
        return y.sin()

    return checkpoint(body, x, use_reentrant=False)


@pytest.mark.parametrize("program", [changes_a_list, reads_a_list, writes_what_a_hook_holds, writes_it_in_a_region])
def test_what_a_hook_shares_with_the_program_runs_eagerly(program: Any) -> None:
    compiled, runs = thunder.jit(program), []
    for function in (program, compiled):
        x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
        result = function(x)
        loss, *others = result if isinstance(result, tuple) else (result,)
        loss.sum().backward()
        runs.append([loss, x.grad, *[item for seen in others for item in seen]])
    for found, expected in zip(*runs, strict=True):
        torch.testing.assert_close(found, expected)
    assert thunder.explain(compiled).fallbacks


def test_hook_that_writes_to_a_tensor_of_the_program_raises() -> None:
    def program(x: torch.Tensor) -> Any:
        total, y = torch.zeros(()), x * 2
        y.register_hook(lambda gradient: total.add_(gradient.sum()) and None)
        return y.sin().sum(), total

    loss, _ = thunder.jit(program)(torch.ones(3, requires_grad=True))
    with pytest.raises(UnsupportedError, match="writes to a tensor that the program computes"):
        loss.backward()
