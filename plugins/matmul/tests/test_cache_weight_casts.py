"""Conversions of weights are made once, and again when weights change."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from projections import WRITES, Projections, write_data
from torch import nn

import thunder
from thunder_plugin_matmul.cache_weight_casts import CachedCasts, CacheWeightCasts


def run(program: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        result: torch.Tensor = program(x)
    return result


def compiled(module: nn.Module) -> Any:
    return thunder.jit(module, executors=[], transforms=[CacheWeightCasts()])


def kept(program: Any) -> int:
    return sum(line.symbol.name == "cached_cast" for line in thunder.last_traces(program)[-1].symbols)


@pytest.mark.parametrize("write", [item for item in WRITES if item is not write_data], ids=lambda item: item.__name__)
def test_weights_that_change(write: Callable[[Any], None]) -> None:
    module, x = Projections(), torch.randn(3, 6)
    program = compiled(module)
    for _ in range(2):
        torch.testing.assert_close(run(program, x), run(module, x), rtol=0, atol=0)
    assert kept(program) == 8
    with torch.no_grad():
        write(module)
    torch.testing.assert_close(run(program, x), run(module, x), rtol=0, atol=0)


def test_writes_that_go_past_the_version_counter_are_the_promise() -> None:
    """What the transform documents: without the promise it would be wrong."""
    cached, weight = CachedCasts(), nn.Parameter(torch.ones(2))
    first = cached.cast(weight, torch.bfloat16)
    weight.data.zero_()
    assert cached.cast(weight, torch.bfloat16) is first


@pytest.mark.slow
def test_once_for_all_shapes_and_modes() -> None:
    module = Projections()
    program = compiled(module)
    for rows in (2, 3):
        run(program, torch.randn(rows, 6))
    with torch.inference_mode():
        run(program, torch.randn(2, 6))
    x = torch.randn(2, 6)
    torch.testing.assert_close(run(program, x), run(module, x), rtol=0, atol=0)


def test_an_address_that_is_used_again() -> None:
    cached, weight = CachedCasts(), nn.Parameter(torch.zeros(1000))
    for value in range(20):
        weight.data = torch.full((1000,), float(value))
        assert cached.cast(weight, torch.bfloat16)[0] == value


@pytest.mark.slow
def test_weights_die() -> None:
    cached, weight = CachedCasts(), nn.Parameter(torch.zeros(4))
    result = weakref.ref(cached.cast(weight, torch.bfloat16))
    del weight
    gc.collect()
    assert result() is None


def test_training_and_what_is_returned_or_written_stay() -> None:
    module = Projections()
    program = compiled(module)
    with torch.autocast("cpu", torch.bfloat16):
        program(torch.randn(2, 6)).sum().backward()
    assert kept(program) == 0

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> Any:
            written = self.weight.half()
            written.mul_(2)
            return self.weight.bfloat16(), written * x.half()

    half = compiled(Half())
    with torch.no_grad():
        for _ in range(2):
            one, two = half(torch.ones(3))
            assert torch.equal(one, torch.ones(3, dtype=torch.bfloat16))
            assert torch.equal(two, torch.full((3,), 2.0, dtype=torch.float16))
            one.zero_()
    assert kept(half) == 0
