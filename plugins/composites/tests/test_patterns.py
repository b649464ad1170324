"""Composites in programs of a few lines: what is found, and what is something else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pattern_programs import B, K, T, check, loss, normal, rms_norm, rotary, swiglu

import thunder
from thunder_core.ir.symbol import Tag
from thunder_core.symbols.registry import registry
from thunder_plugin_composites.recognition.matching import ends
from thunder_plugin_composites.recognition.templates import sampled
from thunder_plugin_composites.symbols import PATTERNS


def test_each_row_is_about_a_composite() -> None:
    for pattern in PATTERNS:
        assert Tag.COMPOSITE in registry.symbol_of(pattern.composite).tags
        assert list(ends(sampled(pattern)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(dtype: torch.dtype) -> None:
    x, weight = normal(B, T, K, dtype=dtype), normal(K, dtype=dtype)
    check(rms_norm, (x, weight), {"rms_norm": 1})
    check(swiglu, (x, normal(B, T, K, dtype=dtype)), {"swiglu": 1})
    cos, sin = torch.rand(T, K).to(dtype), torch.rand(T, K).to(dtype)
    check(rotary, (x, cos, sin), {"rotary_embedding": 1})
    target = torch.tensor([1, 5, -100, 2, 0, 6, 3, 3])
    check(loss, (x, normal(7, K, dtype=dtype), target), {"linear_cross_entropy": 1})


def test_dtypes_of_statistics() -> None:
    x, weight = normal(B, K, dtype=torch.float64), normal(K, dtype=torch.float64)
    compiled = check(rms_norm, (x, weight), {"rms_norm": 1})  # of float32, between two conversions
    recognized = next(one for one in thunder.last_traces(compiled) if one.provenance == "recognize_composites")
    assert [line.symbol.name.rpartition(".")[2] for line in recognized.symbols] == ["to", "to", "rms_norm", "to"]

    def in_its_own(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(torch.mean(x * x, -1, keepdim=True) + 1e-5) * weight

    check(in_its_own, (x, weight), {"rms_norm": 1})
    # in bfloat16 the same program rounds the statistics
    check(in_its_own, (normal(B, K, dtype=torch.bfloat16), normal(K, dtype=torch.bfloat16)), {})


def test_wider_results_are_not_the_composite() -> None:
    """With tables of float32, the rotated queries are of float32 unless the program converts them back."""
    x, cos, sin = normal(B, T, K, dtype=torch.bfloat16), torch.rand(T, K), torch.rand(T, K)
    check(rotary, (x, cos, sin), {})
    check(lambda x, cos, sin: rotary(x, cos, sin).to(x.dtype), (x, cos, sin), {"rotary_embedding": 1})

    def both(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        wide = rotary(x, cos, sin)
        return wide + wide.to(x.dtype)

    check(both, (x, cos, sin), {})


def test_operands_may_change_places() -> None:
    x, weight, cos, sin = normal(B, T, K), normal(K), torch.rand(T, K), torch.rand(T, K)

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        n = weight * (torch.rsqrt(1e-5 + torch.mean(x * x, -1, keepdim=True)) * x)
        n = sin * torch.cat((-n[..., 4:], n[..., :4]), dim=-1) + cos * n
        return n * F.silu(weight * n)

    check(program, (x, weight), {"rms_norm": 1, "rotary_embedding": 1, "swiglu": 1})


def test_what_differs_is_no_match() -> None:
    x, weight, table = torch.rand(B, T, K).requires_grad_(), torch.rand(K).requires_grad_(), torch.rand(T, K)
    check(lambda x, w: x * torch.rsqrt(torch.mean(x * x, 0, keepdim=True) + 1e-5) * w, (x, weight), {})
    check(lambda x, w: x * torch.rsqrt(torch.mean(x * w, -1, keepdim=True) + 1e-5) * w, (x, weight), {})
    check(lambda x: x * table + torch.cat((-x[..., 3:], x[..., :3]), -1) * table, (x,), {})
    check(lambda x: x * table + torch.cat((x[..., 4:], -x[..., :4]), -1) * table, (x,), {})
    check(lambda x: F.silu(x) * F.silu(x), (x,), {"swiglu": 1})
    check(lambda x: F.silu(x).square(), (x,), {})
    check(lambda x, scale: torch.softmax(x * scale, -1), (x, normal()), {})
    check(lambda x: torch.softmax(x * 0.5, 1), (x,), {})


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("dtype", [None, torch.float32])
def test_softmax(mask: bool, dtype: torch.dtype | None) -> None:
    hidden = torch.full((T, T), -torch.inf, dtype=torch.bfloat16).triu(1)

    def program(scores: torch.Tensor) -> torch.Tensor:
        scaled = scores * 0.25
        return F.softmax(scaled + hidden if mask else scaled, dim=-1, dtype=dtype)

    compiled = check(program, (normal(B, T, T, dtype=torch.bfloat16),), {"scaled_softmax": 1})
    (line,) = [one for one in thunder.last_traces(compiled)[-1].symbols if one.symbol.executor == "whole"]
    assert line.args[1] == 0.25


def test_options_of_the_loss() -> None:
    x, weight, bias, target = normal(B, T, K), normal(7, K), normal(7), torch.randint(7, (B * T,))
    own = torch.rand(7)
    options: dict[str, Any] = {"ignore_index": 3, "reduction": "none", "label_smoothing": 0.125}

    def program(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        logits = F.linear(x, weight, bias).flatten(0, 1)
        return F.cross_entropy(logits, target, own, **options)

    compiled = check(program, (x, weight, bias), {"linear_cross_entropy": 1})
    call = str(thunder.last_backward_traces(compiled)[0])
    assert "3, 'none', 0.125" in call
    check(lambda x, w: F.cross_entropy(F.linear(x[0], w), target[:T]), (x, weight), {"linear_cross_entropy": 1})


@pytest.mark.slow
def test_norms_of_other_models() -> None:
    def normalized(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)

    def meta(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return normalized(x.float()).type_as(x) * weight

    def t5(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        n = x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-5)
        return weight * (n.to(weight.dtype) if weight.dtype is torch.bfloat16 else n)

    def by_power(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (normalized(x.float()) * weight.float()).to(x.dtype)

    def by_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        n = x.float()
        return weight * (n * torch.rsqrt((n * n).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)

    for dtype, limit in ((torch.bfloat16, 3e-2), (torch.float32, 1e-5)):  # T5 rounds each part of the gradient
        for norm in (meta, t5, by_power, by_product):
            args = normal(B, T, K, dtype=dtype), normal(K, dtype=dtype)
            check(norm, args, {"rms_norm": 1}, rtol=limit, atol=limit)
    check(t5, (normal(B, K, dtype=torch.bfloat16), normal(K)), {})  # its sum is not rounded before the weight
