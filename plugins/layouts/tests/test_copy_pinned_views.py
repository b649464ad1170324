"""Attention alone keeps no larger memory for backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder_core.ir.program import compile_trace
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_layouts.copy_pinned_views import CopyPinnedViews
from thunder_testing.pointwise import Pointwise

HEADS, GROUPS, SIZE, POSITIONS = 4, 1, 8, 6
WIDTH = (HEADS + 2 * GROUPS) * SIZE
COSINES = torch.randn(POSITIONS, SIZE)


def split(both: torch.Tensor, parts: tuple[int, ...] = (HEADS, GROUPS, GROUPS)) -> list[torch.Tensor]:
    """Query, key and value: (batch, heads, positions, size), views."""
    sizes = [part * SIZE for part in parts]
    return [part.view(2, POSITIONS, -1, SIZE).transpose(1, 2) for part in both.split(sizes, -1)]


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """As rotary embeddings do it."""
    half = torch.cat((-tensor[..., SIZE // 2 :], tensor[..., : SIZE // 2]), -1)
    return tensor * COSINES + half * COSINES


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def plain(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    query, key, value = split(F.linear(x, weight))
    return attention(turned(query), turned(key), value)


def inputs(width: int = WIDTH, grad: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, POSITIONS, 16, requires_grad=grad), torch.randn(width, 16, requires_grad=grad)


def copies(program: Any, *args: torch.Tensor) -> int:
    """How many copies the pass makes; the program computes what it did."""
    acquired = front_end.record(program, args, {})
    after = CopyPinnedViews().run(acquired.trace, TransformContext(Phase.INFERENCE))
    verify(after)
    found, expected = (compile_trace(trace)(*acquired.inputs) for trace in (after, acquired.trace))
    for one, other in zip(found, expected, strict=True):
        assert one.stride() == other.stride()
        assert torch.equal(one, other)
    return sum(line.symbol.name == "torch.clone" for line in after.symbols)


def test_the_value_is_copied() -> None:
    assert copies(plain, *inputs()) == 1


def separate(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    query, key, _ = split(F.linear(x, weight))
    (value,) = split(F.linear(x, weight[-SIZE:]), (GROUPS,))
    return attention(turned(query), turned(key), value)


def all_three(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return attention(*split(F.linear(x, weight)))


def returned(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    both = F.linear(x, weight)
    query, key, value = split(both)
    return attention(turned(query), turned(key), value), both


def given(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    query, key, value = split(x)
    return attention(turned(query), turned(key), value)


def normalized(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    query, key, value = split(F.linear(x, weight))
    return attention(F.layer_norm(query, (SIZE,)), turned(key), value)


def multiplied(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    query, key, value = split(F.linear(x, weight))
    return attention(turned(query) * x.mean(), query * x.mean() + key, value)


@pytest.mark.parametrize("program", [separate, all_three, returned, normalized, multiplied])
def test_where_nothing_would_be_free(program: Any) -> None:
    assert copies(program, *inputs()) == 0


def test_inputs_stay() -> None:
    assert copies(given, torch.randn(2, POSITIONS, WIDTH, requires_grad=True), torch.randn(1)) == 0


def test_without_gradients_nothing_is_kept() -> None:
    assert copies(plain, *inputs(grad=False)) == 0
    with torch.no_grad():
        assert copies(plain, *inputs()) == 0


@pytest.mark.parametrize("kept", [False, True])
def test_training_is_as_in_eager_and_keeps_less(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if kept:
        monkeypatch.setattr(CopyPinnedViews, "run", lambda self, trace, context: trace)
    compiled = thunder.jit(plain, executors=[Pointwise()])
    results = []
    for program in (compiled, plain):
        args = inputs()
        result = program(*args)
        result.square().sum().backward()
        results.append([result.detach(), *[arg.grad for arg in args]])
    torch.testing.assert_close(*results)
    backward = str(thunder.last_backward_traces(compiled)[-1])
    assert (f"f32[2, {POSITIONS}, {WIDTH}] grad" in backward.partition("):")[0]) is kept


@pytest.mark.slow
def test_sizes_that_vary() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        parts = F.linear(x, weight).split(2 * SIZE, -1)
        query, key, value = (part.unflatten(-1, (2, SIZE)).transpose(1, 2) for part in parts)
        return F.scaled_dot_product_attention(-query, -key, value)

    compiled = thunder.jit(program, executors=[Pointwise()], dynamic=True)
    weight = torch.randn(6 * SIZE, 16, requires_grad=True)
    for b, n in [(2, 6), (3, 9)]:
        x = torch.randn(b, n, 16)
        torch.testing.assert_close(compiled(x, weight), program(x, weight))
    assert thunder.cache_misses(compiled) == 1
    assert [line.symbol.name for line in thunder.last_traces(compiled)[-1].symbols].count("torch.clone") == 1
