"""Masks of attention that are known when a program is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import thunder

Q, K, V = torch.randn(3, 2, 4, 6, 8).unbind()
LEAST = torch.finfo(torch.float32).min


def call(compiled: Callable[..., object]) -> str:
    """The line that calls attention."""
    lines = thunder.last_traces(compiled)[-1].python().splitlines()
    return next(line for line in lines if "scaled_dot_product" in line and not line.strip().startswith("#"))


def positions(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]


def attend(mask: Callable[[Tensor, Tensor], Tensor], dropout: float = 0.0) -> Callable[..., Tensor]:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask(*positions(q, k)), dropout)

    return program


def additive(shown: Tensor, masked: float) -> Tensor:
    return torch.zeros(shown.shape).masked_fill(~shown, masked)


@pytest.mark.parametrize(
    ("mask", "becomes"),
    [
        pytest.param(lambda q, k: (q >= 0).expand(2, 1, 6, 6), "None", id="nothing is masked"),
        pytest.param(lambda q, k: torch.zeros(6, 6), "None", id="zeros are added"),
        pytest.param(lambda q, k: k <= q, "is_causal", id="causal"),
        pytest.param(lambda q, k: torch.ones(2, 4, 6, 6, dtype=torch.bool).tril(), "is_causal", id="of each head"),
        pytest.param(lambda q, k: additive(k <= q, -float("inf")), "is_causal", id="minus infinity is added"),
        pytest.param(lambda q, k: additive(k <= q, LEAST), "is_causal", id="the least number is added"),
        pytest.param(lambda q, k: k < q + 2, "mask", id="one position ahead"),
        pytest.param(lambda q, k: k >= q, "mask", id="anticausal"),
        pytest.param(lambda q, k: (k <= q) & (k > q - 3), "mask", id="a sliding window"),
        pytest.param(lambda q, k: additive(k <= q, -5.0), "mask", id="a penalty"),
        pytest.param(lambda q, k: torch.stack([k <= q, k >= q])[:, None], "mask", id="one item is causal"),
    ],
)
def test_the_mask_goes_where_it_can(mask: Callable[[Tensor, Tensor], Tensor], becomes: str) -> None:
    program = attend(mask)
    compiled = thunder.jit(program, executors=[])
    inputs = [tensor.clone().requires_grad_() for tensor in (Q, K, V)]
    found, expected = compiled(*inputs), program(Q, K, V)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    assert ("True" in call(compiled)) == (becomes == "is_causal")
    assert ("attn_mask" in call(compiled)) == (becomes == "mask")


def narrow(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k[:, :, :4], v[:, :, :4], torch.ones(6, 4).tril() > 0)


def decoding(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q[:, :, -1:], k, v, torch.ones(1, 6) > 0)


def copied(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, torch.ones(6, 6) > 0).transpose(1, 2).reshape(2, 6, -1)


def of_an_input(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, q.sum((0, 1, 3))[:, None] < v.new_zeros(6))


def returned(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    mask = torch.ones(6, 6).tril() > 0
    return F.scaled_dot_product_attention(q, k, v, mask, scale=0.3), mask


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], torch.ones(6, 6) > 0, enable_gqa=True)


@pytest.mark.parametrize(
    "program",
    [narrow, decoding, copied, of_an_input, returned, grouped, attend(lambda q, k: k <= q, 0.5)],
    ids=lambda program: program.__name__,
)
def test_results_and_gradients_are_those_of_eager(program: Callable[..., Any]) -> None:
    runs = []
    for function in (program, thunder.jit(program)):
        inputs = [tensor.clone().requires_grad_() for tensor in (Q, K, V)]
        torch.manual_seed(0)
        results = function(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        runs.append([*results, *torch.autograd.grad(results[0].square().sum(), inputs)])
    for found, expected in zip(*runs, strict=True):
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


def checkpointed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Two regions, of which the second has another inside, read a part of a mask from outside."""
    rows, columns = positions(q, k)
    mask = torch.cat([columns <= rows, columns == rows])

    def region(q: Tensor, k: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q.sin(), k, v, mask[:6])

    def around(q: Tensor) -> Tensor:
        return checkpoint(region, q * 2, k, use_reentrant=False)

    q = checkpoint(region, q, k, use_reentrant=False)
    return checkpoint(around, q, use_reentrant=False)


def test_checkpoints_read_masks_from_outside() -> None:
    compiled = thunder.jit(checkpointed, executors=[])
    runs = []
    for function in (checkpointed, compiled):
        inputs = [tensor.clone().requires_grad_() for tensor in (Q, K, V)]
        result = function(*inputs)
        runs.append([result, *torch.autograd.grad(result.square().sum(), inputs)])
    torch.testing.assert_close(runs[1], runs[0])
    text = thunder.last_traces(compiled)[-1].python()
    assert text.count("0.0, True") == 2
    assert "arange" not in text


def test_a_mask_of_varying_sizes_stays() -> None:
    program = attend(lambda q, k: k <= q)
    compiled = thunder.jit(program, dynamic=True)
    for length in (5, 6, 7):
        inputs = torch.randn(3, 2, 4, length, 8).unbind()
        torch.testing.assert_close(compiled(*inputs), program(*inputs))


def test_a_mask_of_a_number_that_varies_stays() -> None:
    """Its sizes are constants, and its values are not."""

    def program(q: Tensor, k: Tensor, v: Tensor, seen: int) -> Tensor:
        mask = torch.arange(6)[None, :] <= torch.arange(6)[:, None] + seen
        return F.scaled_dot_product_attention(q, k, v, mask)

    compiled = thunder.jit(program)
    for seen in (0, 1, 2, 3, 0):
        torch.testing.assert_close(compiled(Q, K, V, seen), program(Q, K, V, seen))
    assert thunder.cache_misses(compiled) == 2


def test_what_is_above_the_limit_is_not_evaluated() -> None:
    compiled = thunder.jit(attend(lambda q, k: k <= q), transforms=[{"constant_masks": {"limit": 35}}])
    compiled(Q, K, V)
    assert "True" not in call(compiled)
