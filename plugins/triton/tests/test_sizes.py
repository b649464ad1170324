"""Sizes that vary: one compilation for several sizes, by the kernels, as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import DEVICE, table

import thunder

SIZES = [(2, 8), (3, 20), (5, 7)]
WIDTH = 16


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return x * cos + torch.cat((-x[..., WIDTH // 2 :], x[..., : WIDTH // 2]), -1) * sin


def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x.flatten(0, 1), target.flatten())


def loss_of_layer(x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(x.flatten(0, 1), weight), target.flatten())


def rows(b: int, n: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(b, n, WIDTH),)


def pair(b: int, n: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(b, n, WIDTH), torch.randn(b, n, WIDTH)


def classes(b: int, n: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(b, n, WIDTH), torch.randint(0, WIDTH, (b, n))


def layer(b: int, n: int) -> tuple[torch.Tensor, ...]:
    return (*classes(b, n), torch.randn(32, WIDTH))


def tables(b: int, n: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(b, 4, n, WIDTH), torch.randn(n, WIDTH), torch.randn(n, WIDTH)


PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., tuple[torch.Tensor, ...]]]] = {
    "rms_norm": (lambda x: F.rms_norm(x, (WIDTH,)), rows),
    "layer_norm": (lambda x: F.layer_norm(x, (WIDTH,)), rows),
    "softmax": (lambda x: x.softmax(-1), rows),
    "swiglu": (lambda gate, up: F.silu(gate) * up, pair),
    "cross_entropy": (loss, classes),
    "linear_cross_entropy": (loss_of_layer, layer),
    "rotary_embedding": (rotated, tables),
}


def leaves(make: Callable[..., tuple[torch.Tensor, ...]], sizes: tuple[int, int]) -> list[torch.Tensor]:
    """Tensors whose rows have a constant width; the first requires a gradient."""
    torch.manual_seed(sum(sizes))
    found = [tensor.to(DEVICE) for tensor in make(*sizes)]
    for tensor in found:
        if tensor.is_floating_point():
            torch._dynamo.mark_static(tensor, tensor.ndim - 1)
    found[0].requires_grad_()
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.slow
def test_one_compilation(name: str) -> None:
    function, make = PROGRAMS[name]
    compiled = thunder.jit(function, executors=["triton"], dynamic=True)
    for sizes in SIZES:
        results: list[Any] = []
        for program in (compiled, function):
            tensors = leaves(make, sizes)
            result = program(*tensors)
            result.backward(torch.cos(torch.arange(result.numel(), device=DEVICE)).view_as(result))
            results.append((result.detach(), tensors[0].grad))
        torch.testing.assert_close(*results)
    assert thunder.cache_misses(compiled) == 1
    taken = [each for each in thunder.explain(compiled).decisions if each.symbol.endswith(name)]
    assert taken, table(compiled)
    assert {each.executor for each in taken} == {"triton"}, table(compiled)


def test_a_width_that_varies() -> None:
    softmax = thunder.jit(lambda x: x.softmax(-1), executors=["triton"], dynamic=True)
    norm = thunder.jit(lambda x: F.rms_norm(x, (x.shape[-1],)), executors=["triton"], dynamic=True)
    for width in (8, 24, 20):
        x = torch.randn(3, width, device=DEVICE)
        torch.testing.assert_close(softmax(x), x.softmax(-1))
        torch.testing.assert_close(norm(x), F.rms_norm(x, (width,)))
    assert thunder.cache_misses(softmax) == thunder.cache_misses(norm) == 1
    assert "triton.rows or blocks" in table(softmax)
    assert "the value of the size s1, which varies between calls, is needed" in table(norm)
