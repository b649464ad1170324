"""Models and training loops through Dynamo."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from dynamo_programs import MARKS

import thunder_plugin_dynamo

pytestmark = MARKS


@pytest.fixture(autouse=True)
def no_graphs_of_before() -> None:
    torch._dynamo.reset()


def losses(model: Any, called: Any, batches: list[torch.Tensor], loss_of: Any) -> list[torch.Tensor]:
    """Of some steps of training; the model's parameters change."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    torch.manual_seed(1)
    for batch in batches:
        loss = loss_of(called(batch), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach())
    return found


def next_token(result: Any, batch: torch.Tensor) -> torch.Tensor:
    logits = getattr(result, "logits", result)
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


@pytest.mark.slow
def test_lit_gpt_trains() -> None:
    from litgpt import GPT, Config

    torch.manual_seed(0)
    config = Config.from_name("pythia-14m", n_layer=2, n_embd=32, n_head=2, block_size=16, padded_vocab_size=64)
    model = GPT(config)
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend="thunder", fullgraph=True)
    batches = [torch.randint(64, (2, 8)) for _ in range(4)]
    torch.testing.assert_close(losses(model, compiled, batches, next_token), losses(twin, twin, batches, next_token))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert (len(graph.compiled.entries), graph.compiled.cache_hits) == (1, 3)


class WithBreak(torch.nn.Module):
    """A model that looks at a value between two of its parts."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.model(tokens, use_cache=False).logits
        if logits.isnan().any():
            raise FloatingPointError("the model has diverged")
        return logits * self.scale


@pytest.mark.slow
def test_hugging_face_model_with_a_graph_break_trains() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=64
    )
    model = WithBreak(LlamaForCausalLM(config))
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend="thunder")
    batches = [torch.randint(64, (2, 8)) for _ in range(3)]
    torch.testing.assert_close(losses(model, compiled, batches, next_token), losses(twin, twin, batches, next_token))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    found = thunder_plugin_dynamo.report(compiled)
    assert len(found.graphs) == 2
    assert len(found.breaks) == 1
    assert "if logits.isnan().any()" in str(found.breaks[0])


@pytest.mark.slow
def test_a_whole_step_of_training_with_breaks() -> None:
    """The step itself is compiled: ``backward`` and the optimizer run where Dynamo breaks the graph."""

    def train(make_step: Any) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        called = make_step(step)
        return [called(torch.randn(6, 4)) for _ in range(3)], model.state_dict()

    torch.testing.assert_close(train(lambda step: torch.compile(step, backend="thunder")), train(lambda step: step))
