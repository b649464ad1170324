"""What only a GPU shows: sizes of language models, offsets beyond 32 bits, captured graphs, streams and devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from against_eager import assert_as_accurate_as_eager
from norms import functional, gemma, hugging_face, layer_norm, lit_gpt

import thunder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("norm", [lit_gpt, hugging_face, gemma, functional, layer_norm])
def test_norms_of_language_models(norm: Any, dtype: torch.dtype) -> None:
    for width in (128, 2048, 4096, 5120, 16384):
        x, weight = torch.randn(2048, width, device="cuda", dtype=dtype), torch.randn(width, device="cuda", dtype=dtype)
        assert_as_accurate_as_eager(norm, x, weight, name="_norm")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_softmax_of_scores(dtype: torch.dtype) -> None:
    for width in (128, 1000, 4096, 50257):
        x = torch.randn(2, 4, 64, width, device="cuda", dtype=dtype)
        assert_as_accurate_as_eager(lambda x: torch.softmax(x, -1), x, name="softmax")
        mask = torch.full((64, width), -torch.inf, device="cuda", dtype=dtype).triu(1)

        def attend(x: torch.Tensor, mask: torch.Tensor = mask) -> torch.Tensor:
            return torch.softmax(x * 0.1 + mask.to(x.dtype), -1)

        assert_as_accurate_as_eager(attend, x, name="scaled_softmax")


def test_more_elements_than_32_bits_count() -> None:
    rows, width = 2**19 + 64, 4096
    x = torch.randn(64, width, device="cuda", dtype=torch.bfloat16).repeat(rows // 64, 1).requires_grad_()
    weight = torch.randn(width, device="cuda", dtype=torch.bfloat16)
    compiled = thunder.jit(functional, executors=["triton"])
    result = compiled(x, weight)
    (gradient,) = torch.autograd.grad(result, x, result)
    for found in (result, gradient):
        assert torch.equal(found[-64:], found[:64])
    torch.testing.assert_close(result[-64:], functional(x[:64], weight))


def test_captured_in_a_graph() -> None:
    """Nothing is timed in a capture: its kernel is that of the table, which the first program compiles."""
    x = torch.randn(512, 3000, device="cuda")
    fixed = thunder.jit(lambda x: F.rms_norm(x, (3000,)), executors=[{"triton": {"autotune": False}}])
    tuned = thunder.jit(lambda x: F.rms_norm(x, (3000,)), executors=["triton"])
    with torch.no_grad():
        fixed(x)
        tuned(x[:100])  # another bucket
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = tuned(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(result, F.rms_norm(x, (3000,)))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_another_device() -> None:
    x, weight = torch.randn(64, 256, device="cuda:1"), torch.randn(256, device="cuda:1")
    assert_as_accurate_as_eager(hugging_face, x, weight, name="rms_norm")
