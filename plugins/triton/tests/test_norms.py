"""rms_norm and layer_norm, as models write them and as PyTorch has them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import DEVICE, assert_as_accurate_as_eager
from norms import functional, gemma, hugging_face, layer_norm, lit_gpt, without_weight

import thunder

DTYPES = (torch.float32, torch.bfloat16)
WIDTHS = (33, 256)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", [lit_gpt, hugging_face, gemma, functional, without_weight])
@pytest.mark.slow
def test_rms_norm(norm: Any, dtype: torch.dtype) -> None:
    for width in WIDTHS:
        x, weight = torch.randn(3, 5, width, dtype=dtype), torch.randn(width, dtype=dtype)
        assert_as_accurate_as_eager(norm, x.to(DEVICE), weight.to(DEVICE), name="rms_norm")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", [lit_gpt, hugging_face, gemma, functional, without_weight])
def test_rows_of_one_element(norm: Any, dtype: torch.dtype) -> None:
    """Their gradient is the difference of two nearly equal numbers, so its relative error is meaningless."""
    x, weight = torch.randn(15, 1, device=DEVICE, dtype=dtype), torch.randn(1, device=DEVICE, dtype=dtype)
    compiled = thunder.jit(norm, executors=["triton"])
    results = []
    for program in (compiled, norm):
        own = x.clone().requires_grad_()
        result = program(own, weight)
        results.append((result, *torch.autograd.grad(result.sum(), own)))
    torch.testing.assert_close(*results, rtol=1e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # by eager PyTorch
@pytest.mark.parametrize("norm", [lit_gpt, hugging_face, functional])
def test_weight_of_another_dtype(norm: Any) -> None:
    x, weight = torch.randn(3, 40, dtype=torch.bfloat16, device=DEVICE), torch.randn(40, device=DEVICE)
    assert_as_accurate_as_eager(norm, x, weight, name="rms_norm")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.slow
def test_layer_norm(dtype: torch.dtype) -> None:
    for width in WIDTHS:
        x = (torch.randn(3, 5, width) + 2).to(DEVICE, dtype)
        weight, bias = torch.randn(2, width, device=DEVICE, dtype=dtype)
        norm = assert_as_accurate_as_eager
        norm(lambda x, w, b: F.layer_norm(x, w.shape, w, b), x, weight, bias, name="layer_norm")
        norm(lambda x, b: F.layer_norm(x, b.shape, bias=b), x, bias, name="layer_norm")
        norm(lambda x, w: F.layer_norm(x, w.shape, w), x, weight, name="layer_norm")


def test_several_dimensions_are_normalized() -> None:
    x, weight, bias = torch.randn(4, 3, 5, device=DEVICE), *torch.randn(2, 3, 5, device=DEVICE)
    assert_as_accurate_as_eager(lambda x, w, b: F.layer_norm(x, (3, 5), w, b), x, weight, bias, name="layer_norm")
    assert_as_accurate_as_eager(lambda x, w: F.rms_norm(x, (3, 5), w), x, weight, name="rms_norm")


@pytest.mark.parametrize("norm", [functional, hugging_face, layer_norm])
def test_rows_at_a_distance_and_no_rows(norm: Any) -> None:
    weight = torch.randn(24, device=DEVICE)
    wide = torch.randn(2, 3, 40, device=DEVICE)
    compiled = assert_as_accurate_as_eager(norm, wide[..., 8:32], weight, name="_norm")
    assert "contiguous" not in thunder.last_traces(compiled)[-1].python()
    assert_as_accurate_as_eager(norm, wide[:0, :, :24], weight, name="_norm")


@pytest.mark.parametrize("shared", [False, True], ids=["other strides", "expanded"])
def test_strides_of_cotangents(shared: bool) -> None:
    x, weight = torch.randn(6, 24, device=DEVICE), torch.randn(24, device=DEVICE, requires_grad=True)
    compiled = thunder.jit(functional, executors=["triton"])
    cotangent = torch.randn(1, 1, device=DEVICE).expand(6, 24) if shared else torch.randn(24, 6, device=DEVICE).t()
    results = []
    for program in (compiled, functional):
        own = x.clone().requires_grad_()
        results.append(torch.autograd.grad(program(own, weight), (own, weight), cotangent))
    torch.testing.assert_close(*results)


def test_sums_over_rows_are_the_same_every_time() -> None:
    x, weight = torch.randn(70, 16, device=DEVICE), torch.randn(16, device=DEVICE, requires_grad=True)
    compiled = thunder.jit(functional, executors=["triton"])
    first, second = (torch.autograd.grad(compiled(x, weight).square().sum(), weight)[0] for _ in range(2))
    assert torch.equal(first, second)
