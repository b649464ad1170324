"""Losses, rotary embeddings and gated activations at sizes of language models, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import assert_as_accurate_as_eager

import thunder
import thunder_plugin_composites as composites

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def tensor(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def targets(tokens: int, classes: int) -> torch.Tensor:
    target = torch.randint(0, classes, (tokens,), device="cuda")
    target[::7] = -100
    return target


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", [32000, 50257, 128256])
def test_cross_entropy(classes: int, dtype: torch.dtype) -> None:
    target = targets(515, classes)
    for options in ({}, {"reduction": "none", "label_smoothing": 0.1}):
        loss = lambda x, options=options: F.cross_entropy(x, target, **options)  # noqa: E731
        assert_as_accurate_as_eager(loss, tensor(515, classes, dtype=dtype), name="cross_entropy")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("tokens", [1000, 4500, 9000], ids=["one chunk", "two chunks", "many chunks"])
def test_linear_cross_entropy(tokens: int, dtype: torch.dtype) -> None:
    x, weight = tensor(tokens, 256, dtype=dtype), tensor(3001, 256, dtype=dtype) / 16
    target = targets(tokens, 3001)

    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(x, weight), target, reduction="sum")

    assert_as_accurate_as_eager(loss, x, weight, name="linear_cross_entropy")


def test_memory_of_linear_cross_entropy() -> None:
    """Less than the logits and their gradient alone would take."""
    x, weight = tensor(8192, 1024, dtype=torch.bfloat16), tensor(32000, 1024, dtype=torch.bfloat16)
    target = targets(8192, 32000)
    compiled = thunder.jit(lambda x, weight: F.cross_entropy(F.linear(x, weight), target), executors=["triton"])

    def step() -> None:
        torch.autograd.grad(compiled(x.requires_grad_(), weight.requires_grad_()), (x, weight))

    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    assert torch.cuda.max_memory_allocated() - before < 2 * 8192 * 32000 * 0.85


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rotary_and_gated(dtype: torch.dtype) -> None:
    for x in (tensor(2, 515, 8, 128, dtype=dtype).transpose(1, 2), tensor(2, 8, 515, 80, dtype=dtype)):
        tables: list[Any] = [tensor(515, x.shape[-1], dtype=dtype) for _ in range(2)]
        embed = lambda x, tables=tables: composites.rotary_embedding(x, *[t.to(x.dtype) for t in tables])  # noqa: E731
        assert_as_accurate_as_eager(embed, x, name="rotary_embedding")
    gate, up = (tensor(515, 2 * 5632, dtype=dtype) * 3).chunk(2, -1)
    assert_as_accurate_as_eager(lambda gate, up: F.silu(gate) * up, gate, up, name="swiglu")
    for approximate in ("none", "tanh"):
        gated = lambda gate, up, how=approximate: F.gelu(gate, approximate=how) * up  # noqa: E731
        assert_as_accurate_as_eager(gated, gate, up, name="geglu")
