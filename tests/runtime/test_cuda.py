"""The same programs on a GPU: forward, gradients, buffers, dropout and autocast equal eager. Skipped without one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")


class Attention(nn.Module):
    """Causal self-attention that writes its values into a cache."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("cache", torch.zeros(1, 64, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, 2)
        self.cache[:, :length] = v.detach()[:1]
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).reshape(batch, length, width))


class Network(nn.Module):
    def __init__(self, layers: int = 4, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), Attention(width, 8), nn.GELU(), nn.Dropout(0.1)) for _ in range(layers)
        )
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 100)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_network(dtype: torch.dtype, training: bool) -> None:
    model = Network().to("cuda", dtype).train(training)
    eager, compiled = copy.deepcopy(model), thunder.jit(model)
    tolerance = 1e-4 if dtype is torch.float32 else 2e-2
    for seed in range(3):
        tokens = torch.randint(0, 100, (2, 32), device="cuda")
        results = []
        for run in (eager, compiled):
            torch.manual_seed(seed)
            results.append(run(tokens))
            results[-1].float().pow(2).mean().backward()
        torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance)
    for parameter, expected in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=10 * tolerance, atol=10 * tolerance)
    for buffer, expected in zip(model.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected, rtol=tolerance, atol=tolerance)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (2, 1)


def test_autocast() -> None:
    model = Network().cuda().eval()
    tokens = torch.randint(0, 100, (2, 32), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        result, expected = thunder.jit(model)(tokens), model(tokens)
    assert result.dtype is expected.dtype
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)  # executors round between fused lines otherwise
