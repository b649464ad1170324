"""Sizes that vary: one compilation for several sizes, by PyTorch's kernels, as eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from test_sdpa import check, choice, outcome, reasons

import thunder

SIZES = [(2, 8), (3, 20), (5, 7)]


def causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def masked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(query, key, value, mask)


def transposed(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    heads = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (query, key, value)]
    return F.scaled_dot_product_attention(*heads).transpose(1, 2)


def grouped(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    repeated = [tensor[:, :2].repeat_interleave(2, 1) for tensor in (key, value)]
    return F.scaled_dot_product_attention(query, *repeated)


@pytest.mark.parametrize("program", [causal, masked, transposed, grouped], ids=lambda program: program.__name__)
@pytest.mark.slow
def test_one_compilation(program: Callable[..., torch.Tensor]) -> None:
    compiled = thunder.jit(program, executors=["sdpa"], dynamic=True)
    for b, n in SIZES:
        tensors = [torch.randn(b, 4, n, 16) for _ in range(3)]
        check(outcome(compiled, tensors), outcome(program, tensors), 1e-5)
    assert thunder.cache_misses(compiled) == 1
    assert choice(compiled) == ("sdpa", "flash")


@pytest.mark.slow
def test_sequences_that_may_be_empty_are_left_to_pytorch() -> None:
    def tail(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key[:, :, 3:], value[:, :, 3:])

    compiled = thunder.jit(tail, executors=["sdpa"], dynamic=True)
    for n in (8, 20, 5):
        tensors = [torch.randn(2, 4, n, 16) for _ in range(3)]
        check(outcome(compiled, tensors), outcome(tail, tensors), 1e-5)
    assert choice(compiled)[0] == "sdpa" or "may be empty" in reasons(compiled)
