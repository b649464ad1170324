"""Inputs that are views and have gradients, and such that share memory: their sizes vary as those of other inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

SIZES = [(3, 4), (5, 6), (7, 8), (4, 9)]
Made = tuple[torch.Tensor, torch.Tensor]


def random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


def of_a_result(b: int, n: int) -> Made:
    leaf = random(b * n).requires_grad_()
    return leaf, (leaf * 2).view(b, n)


def leaf_that_is_a_view(b: int, n: int) -> Made:
    leaf = random(b * n).view(b, n).requires_grad_()
    return leaf, leaf


def of_a_leaf(b: int, n: int) -> Made:
    leaf = random(b, n * 2).requires_grad_()
    return leaf, leaf[:, n:]


def part_of_a_result(b: int, n: int) -> Made:
    leaf = random(b, n * 2).requires_grad_()
    return leaf, (leaf * 1)[:, n:]


def transposed(b: int, n: int) -> Made:
    leaf = random(n, b).requires_grad_()
    return leaf, (leaf * 1).t()


def expanded(b: int, n: int) -> Made:
    leaf = random(n).requires_grad_()
    return leaf, (leaf * 1).expand(b, n)


INPUTS = [of_a_result, leaf_that_is_a_view, of_a_leaf, part_of_a_result, transposed, expanded]


def reads(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x.sin() * x.shape[0],)


def reads_a_size_first(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    count = x.shape[0] + x.shape[1]
    return (count * x[-20:],)


def returns_views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x, x[1:], x.t().cos()


def writes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.mul_(2)
    return (x.sin(),)


def outcome(function: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], made: Made) -> Any:
    """Results, whether they are views and leaves, the argument afterwards and the gradient; or the error."""
    leaf, x = made
    try:
        results = function(x)
    except RuntimeError as error:
        return str(error)
    torch.stack([result.square().sum() for result in results]).sum().backward()
    kinds = [(result.is_leaf, result._base is None) for result in results]
    return [result.detach() for result in results], kinds, x.detach(), leaf.grad


@pytest.mark.parametrize("program", [reads, reads_a_size_first, returns_views])
@pytest.mark.parametrize("made", INPUTS)
@pytest.mark.slow
def test_one_program(made: Callable[[int, int], Made], program: Any) -> None:
    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES:
        torch.testing.assert_close(outcome(compiled, made(b, n)), outcome(program, made(b, n)))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("made", INPUTS)
def test_writes(made: Callable[[int, int], Made]) -> None:
    """What autograd refuses in eager is refused likewise."""
    compiled = thunder.jit(writes, dynamic=True, executors=[])
    for b, n in SIZES:
        actual, expected = outcome(compiled, made(b, n)), outcome(writes, made(b, n))
        if isinstance(expected, str):
            assert isinstance(actual, str)
        else:
            torch.testing.assert_close(actual, expected)


def joint(b: int, n: int) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    leaf = random(b, n, 12).requires_grad_()
    return leaf, (leaf * 1).chunk(3, -1)


def pieces(b: int, n: int) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Their places in memory have other distances in each call."""
    leaf = random(b * n + 7).requires_grad_()
    x = leaf * 1
    return leaf, (x[n : n + b], x[2 : 2 + n], x[b + n :])


def attended(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (torch.nn.functional.scaled_dot_product_attention(x, y, z) * x.shape[1],)


def combined(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sum() * y[1:], x.reshape(-1)[1:].cumsum(0) + z.mean()


def written(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.detach().mul_(2)
    return y.exp(), z * 3


def returned(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return y[1:], z * 3, x


@pytest.mark.parametrize(
    ("program", "made", "count"),
    [(attended, joint, 1), (combined, pieces, 1), (written, pieces, 4), (returned, joint, 4), (returned, pieces, 4)],
)
@pytest.mark.slow
def test_inputs_that_share_memory(program: Callable[..., Any], made: Callable[..., Any], count: int) -> None:
    """They have constant sizes where the program writes or returns the memory."""
    compiled = thunder.jit(program, dynamic=True, executors=[])
    for b, n in SIZES:
        found = []
        for function in (compiled, program):
            leaf, inputs = made(b, n)
            results = function(*inputs)
            torch.stack([result.square().sum() for result in results]).sum().backward()
            found.append(([result.detach() for result in results], [one.detach() for one in inputs], leaf.grad))
        torch.testing.assert_close(*found)
    assert thunder.cache_misses(compiled) == count
