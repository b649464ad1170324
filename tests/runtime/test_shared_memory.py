"""Inputs in one memory, one of which is written: programs are used again only for inputs that share it likewise."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

Inputs = tuple[torch.Tensor, torch.Tensor]


def program(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a.mul_(w)
    return b * 3


def views() -> Inputs:
    whole = torch.ones(6)
    return whole[:], whole[2:]


def detached() -> Inputs:
    whole = torch.ones(6)
    return whole.detach(), whole[2:].detach()


def elsewhere() -> Inputs:
    whole = torch.arange(8.0)
    return whole[:6], whole[2:6]


def apart() -> Inputs:
    return torch.ones(6), torch.ones(4)


def moved() -> Inputs:
    whole = torch.arange(6.0)
    return whole[:], whole[:4]


def result(function: Callable[..., Any], make: Callable[[], Inputs]) -> Any:
    w = torch.tensor(2.0, requires_grad=True)
    a, b = make()
    y = function(a, b, w)
    if y.requires_grad:
        y.sum().backward()
    return y.tolist(), y.requires_grad, a.requires_grad, b.requires_grad, a.tolist(), w.grad


MAKERS = (views, detached, elsewhere, apart, moved)


@pytest.mark.parametrize(
    "pair", list(itertools.permutations(MAKERS, 2)), ids=lambda pair: " ".join(m.__name__ for m in pair)
)
def test_program_that_was_made_for_other_inputs(pair: tuple[Callable[[], Inputs], ...]) -> None:
    compiled = thunder.jit(program)
    for make in pair:
        for _ in range(2):
            assert result(compiled, make) == result(program, make)


def test_same_sharing_is_served_by_one_entry() -> None:
    compiled = thunder.jit(program)
    for _ in range(3):
        result(compiled, views)
    assert thunder.cache_misses(compiled) == 1


def test_reason_names_the_inputs() -> None:
    compiled = thunder.jit(program)
    result(compiled, views)
    result(compiled, detached)
    assert "a: shares memory with b in a different way" in thunder.explain(compiled).entries[-1].reason


def test_inputs_that_overlap_partly_are_read() -> None:
    def reads(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> Any:
        return a * x + b, a, b[1:]

    compiled = thunder.jit(reads)
    for _ in range(2):
        whole, x = torch.randn(6), torch.randn(4, requires_grad=True)
        expected, found = (function(whole[:4], whole[2:], x) for function in (reads, compiled))
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(results[0].sum(), x) for results in (expected, found)]
        torch.testing.assert_close(gradients[1], gradients[0])


def test_inputs_that_overlap_partly_are_written_line_by_line() -> None:
    def overlapping() -> Inputs:
        whole = torch.arange(6.0)
        return whole[:4], whole[2:]

    compiled = thunder.jit(program)
    for _ in range(2):
        assert result(compiled, overlapping) == result(program, overlapping)
    (entry,) = thunder.explain(compiled).entries
    assert "overlap in memory, none of them covers the others" in str(entry.as_recorded)
