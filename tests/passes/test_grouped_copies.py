"""Writes of many inputs are one call for each dtype, and leave what separate writes leave."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from tests.passes.programs import acquire_program, functionalize
from thunder_core.passes.grouped_copies import with_grouped_copies


def names(function: Callable[..., Any], *args: Any) -> list[str]:
    """The operations of the epilogue."""
    epilogue = functionalize(acquire_program(function, *args).trace).epilogue
    assert epilogue is not None
    return [op.symbol.name.rpartition(".")[2] for op in with_grouped_copies(epilogue).symbols]


def several(*tensors: torch.Tensor) -> torch.Tensor:
    for tensor in tensors:
        tensor.add_(1)
    return tensors[0] * 2


def swapped(a: torch.Tensor, b: torch.Tensor) -> None:
    before = a.clone()
    a.copy_(b)
    b.copy_(before)


def crossed(a: torch.Tensor, b: torch.Tensor) -> None:
    a.copy_(b)
    b.copy_(a * 2)


def overlapping(a: torch.Tensor, b: torch.Tensor) -> None:
    a[1:] += 1
    a[:2] *= 3
    b += a


def recorded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
    a.copy_(x * 2)
    b.copy_(y * 2)
    return a + b


A, B, INTS = torch.arange(4.0), torch.arange(4.0) + 10, torch.arange(3)


@pytest.mark.parametrize(
    ("function", "args", "calls"),
    [
        pytest.param(several, (A, B), ["_foreach_copy_"], id="two"),
        pytest.param(several, (A, INTS, B, INTS + 1), ["_foreach_copy_"] * 2, id="one for each dtype"),
        pytest.param(several, (A, INTS), ["copy_", "copy_"], id="one of each"),
        pytest.param(several, (A, torch.ones(3, 2).t()), ["copy_", "copy_"], id="by columns"),
        pytest.param(swapped, (A, B), None, id="swapped"),
        pytest.param(crossed, (A, B), None, id="crossed"),
        pytest.param(overlapping, (A, B), None, id="parts that overlap"),
        pytest.param(recorded, (A, B), ["copy_", "copy_"], id="recorded by autograd"),
    ],
)
def test_writes(function: Callable[..., Any], args: tuple[torch.Tensor, ...], calls: list[str] | None) -> None:
    if calls is not None:
        assert names(function, *[arg.clone() for arg in args]) == calls
    compiled = thunder.jit(function, executors=[])
    for _ in range(2):
        given = [arg.clone(memory_format=torch.preserve_format) for arg in args]
        twins = [arg.clone(memory_format=torch.preserve_format) for arg in args]
        result, expected = compiled(*given), function(*twins)
        found, wanted = ([*inputs, *_results(value)] for inputs, value in ((given, result), (twins, expected)))
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one, other)
            assert one.requires_grad == other.requires_grad


def _results(value: torch.Tensor | None) -> list[torch.Tensor]:
    return [] if value is None else [value]


def test_running_statistics() -> None:
    module = nn.Sequential(*[nn.BatchNorm1d(4) for _ in range(3)])
    compiled = thunder.jit(copy.deepcopy(module))
    for _ in range(3):
        x = torch.randn(8, 4)
        torch.testing.assert_close(compiled(x), module(x), rtol=0, atol=0)
        for one, other in zip(compiled.buffers(), module.buffers(), strict=True):
            assert torch.equal(one, other)
