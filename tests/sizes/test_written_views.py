"""Writes to views whose places in memory depend on sizes that vary: results, memory, gradients, number of programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thunder

Program = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def slices_of_flat_memory(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n = x.shape[0]
    y = x.clone().reshape(-1)
    y[n : 2 * n] *= 2
    y[n + 1 :].add_(y[: -n - 1].clone())
    return (y,)


def slices_that_meet(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.clone()
    y[x.shape[0] // 2 :] += 1
    y[:, 1:] *= 3
    y[:-1] = y[1:].clone()
    return y, y[x.shape[0] // 2]


def view_of_a_view(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 1
    half = y[x.shape[0] // 2 :]
    last = half[-1]
    last.mul_(2)
    half[0] += last
    y[1:].add_(1)
    return y, half, last


def transposed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 1
    y.t()[1:].mul_(y.shape[0])
    y.t().reshape(-1)[y.shape[0] :].add_(1)
    return y, y.t()


def rows_apart(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 1
    first, rest = y[: x.shape[0] - 2], y[x.shape[0] - 2 :]
    first.mul_(2)
    rest.sub_(1)
    first.add_(rest.sum())
    return y, first, rest


def every_second(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 1
    y[::2].mul_(3)
    y[1::2] = y[: y.shape[0] // 2].exp()
    return y, y[::2]


def at_sizes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n = x.shape[0]
    y = x * 1
    y[n // 2] = 3
    y[n - 1, 1:] += 1
    y[..., n // n].mul_(2)
    return y, y[n // 2], y[-(n // 2), 1:], y[n - 1, None], y[1:, x.shape[1] - 2], y[None, n // 2 : n // 2 + 1]


PROGRAMS = [at_sizes, slices_of_flat_memory, slices_that_meet, view_of_a_view, transposed, rows_apart, every_second]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.battery
def test_writes_at_places_that_sizes_decide(program: Program, trained: bool, dynamic: bool) -> None:
    compiled = thunder.jit(program, dynamic=True) if dynamic else thunder.jit(program)
    for n in (4, 6, 8, 10, 4):
        x = torch.rand(n, 3, requires_grad=trained)
        y = x.detach().clone().requires_grad_(trained)
        expected, results = program(x), compiled(y)
        for result, other in zip(results, expected, strict=True):
            torch.testing.assert_close(result, other, rtol=0, atol=0, check_stride=True)
        assert [result.data_ptr() - results[0].data_ptr() for result in results] == [
            other.data_ptr() - expected[0].data_ptr() for other in expected
        ]
        if trained:
            torch.stack([one.sum() for one in expected]).sum().backward()
            torch.stack([one.sum() for one in results]).sum().backward()
            torch.testing.assert_close(y.grad, x.grad)
    assert thunder.cache_misses(compiled) == (1 if dynamic else 2)


def test_writes_to_slices_of_inputs() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[x.shape[0] // 2 :].mul_(2)
        x[: x.shape[0] // 2] += x[-1]
        return x[1:].sum(0)

    compiled = thunder.jit(program)
    for n in (4, 6, 8, 5, 7):
        x = torch.rand(n, 3)
        y = x.clone()
        assert torch.equal(compiled(y), program(x))
        assert torch.equal(y, x)
    assert thunder.cache_misses(compiled) == 2
