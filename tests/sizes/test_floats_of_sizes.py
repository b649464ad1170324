"""Floats that programs compute of sizes and ints that vary: quotients, roots, products with floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

Program = Callable[[torch.Tensor], Any]
SIZES = (3, 5, 4, 7, 3, 9, 2)


def returned(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return x + 1, n / 3, 3 / n, n * 0.5, 0.5 - n, math.sqrt(n), n**0.5, n**3, abs(n / 2), {"n": [n / 4]}


def of_two(x: torch.Tensor) -> Any:
    n, m = x.shape
    return x * (math.sqrt(n) * n + m / n - 0.5)


def guarded(x: torch.Tensor) -> Any:
    return x * math.log(x.shape[0] - 4) if x.shape[0] > 4 else x


def in_a_checkpoint(x: torch.Tensor) -> Any:
    def body(y: torch.Tensor) -> torch.Tensor:
        return y.sin() * (y.shape[0] / 2)

    return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False) / math.sqrt(x.shape[0])


def under_autocast(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x.T) / math.sqrt(x.shape[0])


VARYING: list[tuple[Program, int]] = [
    (lambda x: x * (x.shape[0] / 2), 2),
    (lambda x: x.sum(0) * (1 / x.shape[0]), 2),
    (lambda x: x.sum(0) / x.shape[0] ** 2, 2),
    (lambda x: x / math.sqrt(x.shape[0]), 2),
    (lambda x: x * x.shape[0] ** -0.5, 2),
    (lambda x: x * math.log(x.shape[0]) + math.log2(x.shape[1]), 2),
    (lambda x: x + 1.5 * x.shape[0] + (x.shape[1] - 0.5) - (0.25 - x.shape[0]), 2),
    (lambda x: torch.add(x, x, alpha=x.shape[0] / 2), 2),
    (lambda x: x ** (x.shape[0] / 2), 2),
    (lambda x: sum([x.shape[0], 0.5]) * x, 2),
    (lambda x: x * (1 / (x.shape[0] - 4)) if x.shape[0] != 4 else x, 3),
    (lambda x: x * 2 if x.shape[0] / 2 > 2.2 else x, 3),
    (lambda x: x * max(x.shape[0], 4.5), 3),
    (lambda x: x * (10000 ** (-2.0 / x.shape[0])), 2),
    (lambda x: x * 2.0 ** x.shape[0], 2),
    (lambda x: torch.full((x.shape[0],), x.shape[0] / 2), 2),
    (lambda x: torch.nn.functional.layer_norm(x, x.shape[1:], eps=1 / x.shape[0]), 2),
    (lambda x: x * (x.shape[0] / 2) if type(x.shape[0] / 2).__name__ == "float" else x, 2),
    (returned, 2),
    (of_two, 2),
    (guarded, 3),
    (in_a_checkpoint, 2),
    (under_autocast, 2),
]
CONSTANT: list[Program] = [
    lambda x: x * hash(x.shape[0] * 0.7),
    lambda x: (x, {x.shape[0] / 2: 1}),
    lambda x: f"{x.shape[0] / 2:.2f}",
]


def _assert_same(result: Any, expected: Any) -> None:
    same = type(result) is type(expected)  # pytest's assertions would use `type` as a value, not only call it:
    assert same  # then programs of this file would get the builtin
    if isinstance(expected, tuple):
        for one, other in zip(result, expected, strict=True):
            _assert_same(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(result, expected, check_stride=True)
        assert result.requires_grad is expected.requires_grad
    else:
        assert result == expected


def _run(program: Program, *, trained: bool, **options: Any) -> Any:
    """Compare with eager PyTorch for several sizes; returns the compiled program."""
    compiled = thunder.jit(program, **options)
    for n in SIZES:
        x = torch.rand(n, 4, requires_grad=trained)
        y = x.detach().clone().requires_grad_(trained)
        expected, result = program(x), compiled(y)
        _assert_same(result, expected)
        first, other = (value[0] if isinstance(value, tuple) else value for value in (expected, result))
        if isinstance(first, torch.Tensor) and first.requires_grad:
            first.sum().backward()
            other.sum().backward()
            torch.testing.assert_close(y.grad, x.grad)
    return compiled


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(("program", "misses"), VARYING)
@pytest.mark.battery
def test_floats_of_sizes_are_ops(program: Program, misses: int, trained: bool) -> None:
    assert thunder.cache_misses(_run(program, trained=trained)) == misses


@pytest.mark.parametrize("program", CONSTANT)
def test_what_needs_the_float_itself_is_compiled_for_the_size(program: Program) -> None:
    compiled = _run(program, trained=False)
    assert thunder.cache_misses(compiled) >= len(set(SIZES)) - 1
    assert not compiled.fallbacks


def test_floats_of_ints_that_vary() -> None:
    def program(x: torch.Tensor, n: int, rate: float) -> Any:
        return x * (n / 7) + math.sqrt(n * n + 1) * rate, rate * n, n / 2

    compiled = thunder.jit(program)
    for n, rate in ((3, 0.5), (-4, 0.25), (0, 1.5), (12, -2.0)):
        _assert_same(compiled(torch.ones(2), n, rate), program(torch.ones(2), n, rate))
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.slow
def test_inductor_compiles_around_floats_of_sizes(trained: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x + 1.5 * x.shape[0]).sin() - (0.25 - x.shape[0]) * x.cos() / math.sqrt(x.shape[0])

    assert thunder.cache_misses(_run(program, trained=trained, executors=["inductor"])) == 2
