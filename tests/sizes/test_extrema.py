"""`max` and `min` of sizes, and slices of the last elements where there are fewer: expressions, not comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder

LENGTHS = [3, 6, 4, 5, 9, 2]


def filled(x: torch.Tensor) -> torch.Tensor:
    return x.new_ones(max(x.shape[0], 4), 3).cumsum(0).sum() + x * max(5, x.shape[0])


def cut(x: torch.Tensor) -> torch.Tensor:
    return x[: min(x.shape[0], 4)].sum(0) + min(5, x.shape[0])


def of_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.new_ones(max(x.shape[0], y.shape[0]), min(x.shape[0], y.shape[0])) * x.sum()


def window(x: torch.Tensor) -> torch.Tensor:
    last = torch.cat((x, x.cos()))[-10:]
    return last * 2 + torch.arange(last.shape[0], device=x.device)[:, None]


def window_and_softmax(x: torch.Tensor) -> torch.Tensor:
    last = x[..., -16:, :1].softmax(-2)
    return last @ last.mT


def several(x: torch.Tensor) -> torch.Tensor:
    y = x[None, -12:, ..., None]
    return y.squeeze() * x[-20:][-18:]


ONE: list[Callable[..., torch.Tensor]] = [filled, cut, window_and_softmax, several]


def tensor(length: int, *, grad: bool = False) -> torch.Tensor:
    return torch.randn(length, 2, generator=torch.Generator().manual_seed(length)).requires_grad_(grad)


def check(compiled: Any, program: Callable[..., torch.Tensor], *lengths: int) -> None:
    ours, theirs = ([tensor(length, grad=True) for length in lengths] for _ in range(2))
    actual, expected = compiled(*ours), program(*theirs)
    torch.testing.assert_close(actual, expected)
    actual.square().sum().backward()
    expected.square().sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.parametrize("program", ONE, ids=lambda program: program.__name__)
def test_one_program(program: Callable[..., torch.Tensor]) -> None:
    compiled = thunder.jit(program, dynamic=True, executors=[])
    for length in LENGTHS:
        check(compiled, program, length)
    assert thunder.cache_misses(compiled) == 1


def test_two_sizes() -> None:
    compiled = thunder.jit(of_two, dynamic=True, executors=[])
    for lengths in zip(LENGTHS, reversed(LENGTHS), strict=True):
        check(compiled, of_two, *lengths)
    assert thunder.cache_misses(compiled) == 1


def test_a_window_that_fills() -> None:
    compiled = thunder.jit(window, dynamic=True, executors=[])
    for length in (2, 3, 5, 6, 9, 4):
        check(compiled, window, length)
    assert thunder.cache_misses(compiled) == 1


def test_a_window_that_is_full_has_a_constant_size() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.linear(x[-3:].T, torch.ones(2, 3))

    compiled = thunder.jit(program, dynamic=True, executors=[])
    for length in (5, 3, 8):
        check(compiled, program, length)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda n: max([n, 4]),
        lambda n: max(n, 4, 6),
        lambda n: max(n, 4.5),
        lambda n: min(n, 2, key=lambda value: -value),
        lambda n: max(n, n),
        lambda n: min(True, n),
        lambda n: max(n - 20, 0),
        lambda n: min(n + 1, n),
    ],
)
def test_what_python_gives(function: Callable[[int], float]) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, float]:
        value = function(x.shape[0])
        return x * value, value

    compiled = thunder.jit(program, dynamic=True, executors=[])
    for length in LENGTHS:
        (actual, number), (expected, other) = compiled(tensor(length)), program(tensor(length))
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert number == other
        assert type(number) is type(other)


@pytest.mark.slow
def test_written_slices() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[-4:] = 1
        y[-3:] += x[-3:]
        return y

    compiled = thunder.jit(program, executors=[])
    for length in LENGTHS:
        check(compiled, program, length)
