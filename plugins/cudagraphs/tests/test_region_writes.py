"""Graphs of programs in which compiled regions write caches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from graphed_programs import Cached, Pair, same

import thunder
from thunder_plugin_cudagraphs import CUDAGraphs


class Scaled(Cached):
    """What is written is computed by a region."""

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache[:2].index_copy_(1, position, self.project(x) * 2 + 1)
        return F.scaled_dot_product_attention(x, self.cache, self.cache)


@torch.no_grad()
@pytest.mark.slow
def test_a_region_writes_a_cache(device: str) -> None:
    pytest.importorskip("thunder_plugin_inductor")
    eager = Scaled().to(device)
    pair = Pair.of(eager, device)
    compiled = thunder.jit(
        thunder.original(pair.compiled), executors=["inductor"], transforms=[CUDAGraphs(copy_below=0)]
    )
    pair = Pair(eager, compiled)
    version = compiled.cache._version
    for turn in range(8):
        x, position = torch.randn(2, 1, 16, device=device), torch.tensor([turn], device=device)
        same(compiled(x, position), eager(x, position))
        pair.same_state()
        assert compiled.cache._version == version + turn + 1
    assert pair.statistics("inference").replays >= 5
    writes = [line for line in thunder.explain(compiled).decisions if line.symbol.endswith("index_copy_")]
    assert [line.executor for line in writes] == ["inductor"]
