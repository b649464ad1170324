"""The kinds of regions of a model do not depend on the number of its layers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import thunder
from thunder_core.ir.symbol import Tag
from thunder_fusion.keys import trace_key
from thunder_testing.pointwise import Pointwise

litgpt = pytest.importorskip("litgpt")


class WithLoss(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"n_embd": 32, "n_head": 4, "n_query_groups": 2, "intermediate_size": 48}
        config = litgpt.Config.from_name(
            "tiny-llama-1.1b", n_layer=layers, padded_vocab_size=64, block_size=16, **sizes
        )
        self.model = litgpt.GPT(config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())


def kinds(layers: int, autocast: bool, recompute: str) -> tuple[set[Any], int]:
    """Keys of the regions that were compiled, forward and backward, and the number of their calls."""
    executor = Pointwise(tags=frozenset({Tag.ELEMENTWISE, Tag.SHAPE, Tag.REDUCTION}), least=2)
    compiled = thunder.jit(WithLoss(layers), executors=[executor], recompute=recompute)
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        loss = compiled(torch.arange(16).reshape(1, 16))
    loss.backward()
    finals = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    calls = [line for trace in finals for line in trace.symbols if line.symbol.executor == executor.name]
    return {trace_key(region) for region in executor.regions}, len(calls)


# Not "aggressive" under autocast: it saves results in bfloat16 and adds up the float32 residuals of all layers again,
# as one region.
@pytest.mark.parametrize(
    ("autocast", "recompute"),
    [(False, "cheap"), (False, "aggressive"), (True, "cheap")],
    ids=["float32", "float32-aggressive", "autocast"],
)
@pytest.mark.slow
def test_more_layers_have_the_same_kinds_of_regions(autocast: bool, recompute: str) -> None:
    few, calls = kinds(3, autocast, recompute)
    many, more_calls = kinds(6, autocast, recompute)
    assert few == many
    assert more_calls > 1.7 * calls
    assert len(few) < 20
