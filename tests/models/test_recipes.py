"""The presets for a purpose: each keeps its promise on a CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import thunder
from benchmarks.saved_bytes import saved_by
from tests.hardware import runs_lstm
from thunder.config import resolve_config
from thunder_core.plugins.builtin import thunder_presets

RECIPES = ("inference", "training", "decoding", "exact", "low-memory")


def test_each_has_two_names_and_differs_from_the_default() -> None:
    for name in RECIPES:
        assert resolve_config(f"thunder:{name}") == resolve_config(name) != resolve_config()
    assert {preset.name for preset in thunder_presets()} == {"default", "cpu", "cuda", "reference", *RECIPES}


# ---------------------------------------------------------------- exact


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.joint, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, words, width = x.shape
        parts = [each.view(rows, words, 4, 4).transpose(1, 2) for each in self.joint(self.norm(x)).chunk(3, -1)]
        mask = torch.ones(words, words, dtype=torch.bool).tril()
        found = F.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=0.1 if self.training else 0.0)
        return x + self.out(found.transpose(1, 2).reshape(rows, words, width))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.norm(self.first(x)))
        return F.adaptive_avg_pool2d(hidden + F.relu(self.last(hidden)), 1).flatten(1)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(
            self.head(F.dropout(self.embedding(words), 0.3, self.training)).flatten(0, 1), words.flatten()
        )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.noise = nn.GRUCell(6, 6), 0.1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(x.shape[0], 6)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step] + self.noise * torch.randn(x.shape[0], 6), state)
        return state


class Sums(nn.Module):
    """Gradients with many summands, in the order of which they are added."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(7, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = x @ self.weight
        mixed = torch.softmax(hidden, -1) * hidden + torch.sigmoid(x @ self.weight.t())
        return (mixed @ self.weight).tanh() + hidden.exp().log1p() + self.weight.sum() + x.mean(0)


MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "perceptron": lambda: (
        nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4)), torch.randn(5, 8)
    ),
    "norms": lambda: (
        nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 8), nn.SiLU(), nn.GroupNorm(2, 8)), torch.randn(5, 8)
    ),
    "attention": lambda: (Attention(), torch.randn(2, 6, 16)),
    "bfloat16": lambda: (Attention().bfloat16(), torch.randn(2, 6, 16, dtype=torch.bfloat16)),
    "encoder": lambda: (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), torch.randn(2, 5, 16)),
    "residual": lambda: (Residual(), torch.randn(2, 3, 8, 8)),
    "tied": lambda: (Tied(), torch.randint(0, 11, (4, 5))),
    "recurrent": lambda: (Recurrent(), torch.randn(3, 4, 6)),
    "lstm": lambda: (nn.LSTM(5, 6, batch_first=True), torch.randn(2, 4, 5)),
    "sums": lambda: (Sums(), torch.randn(5, 7, requires_grad=True)),
}  # fmt: skip


def bits(call: Any, model: nn.Module, x: torch.Tensor, seed: int, autocast: bool = False) -> list[torch.Tensor | None]:
    """What a step returns or changes: the results, all gradients, buffers, and the state of the generator."""
    torch.manual_seed(seed)
    with torch.autocast("cpu", enabled=autocast):
        results = call(x)
    first = results[0] if isinstance(results, tuple) else results
    (first.float() * torch.linspace(-1, 1, first.numel()).reshape(first.shape)).sum().backward()
    gradients = [x.grad, *[parameter.grad for parameter in model.parameters()]]
    for tensor in (x, *model.parameters()):
        tensor.grad = None
    return [first.detach(), *gradients, *[buffer.clone() for buffer in model.buffers()], torch.get_rng_state()]


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    raw = [each.reshape(-1).view(torch.uint8) for each in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*raw)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.battery
def test_exact_is_eager_to_the_bit(name: str, autocast: bool) -> None:
    if name == "lstm" and autocast and not runs_lstm(torch.bfloat16):
        pytest.skip("oneDNN has no LSTM in bfloat16 for this processor")
    torch.manual_seed(0)
    model, x = MODELS[name]()
    eager, other = copy.deepcopy(model), x.detach().clone().requires_grad_(x.requires_grad)
    compiled = thunder.jit(model, config="thunder:exact")
    for seed in range(2):
        found, expected = bits(compiled, model, x, seed, autocast), bits(eager, eager, other, seed, autocast)
        assert [same(*pair) for pair in zip(found, expected, strict=True)] == [True] * len(found)
    with torch.no_grad():
        pair = [(each[0] if isinstance(each, tuple) else each) for each in (compiled.eval()(x), eager.eval()(other))]
    assert name == "recurrent" or same(*pair)  # which draws numbers
    assert not thunder.explain(compiled).fallbacks


# ---------------------------------------------------------------- low-memory, training


@pytest.mark.parametrize("name", ["perceptron", "encoder", "sums"])
@pytest.mark.slow
def test_low_memory_saves_fewer_bytes_and_has_equal_gradients(name: str) -> None:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    saved = {}
    for recipe in ("default", "thunder:low-memory"):
        compiled = thunder.jit(copy.deepcopy(model).eval(), config=recipe, executors=[])
        saved[recipe] = saved_by(compiled, compiled, (x,))
    assert saved["thunder:low-memory"] < saved["default"]
    eager, compiled = copy.deepcopy(model).eval(), thunder.jit(model.eval(), config="thunder:low-memory")
    x.grad = None
    for found, expected in zip(bits(compiled, model, x, 0), bits(eager, eager, x, 0), strict=True):
        torch.testing.assert_close(found, expected)


def test_training_sums_gradients_in_the_matmuls() -> None:
    class Projections(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(16, 16, bias=False) for _ in range(3)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query, key, value = [layer(x) for layer in self.layers]
            return (query * key.sigmoid() + value).sum()

    x = torch.randn(8, 16, requires_grad=True)
    eager = Projections()
    counts, gradients = {}, {}
    for recipe in ("default", "thunder:training"):
        compiled = thunder.jit(copy.deepcopy(eager), config=recipe)
        (gradients[recipe],) = torch.autograd.grad(compiled(x), x)
        counts[recipe] = len(thunder.last_backward_traces(compiled)[-1].symbols)
    assert counts["thunder:training"] < counts["default"]
    torch.testing.assert_close(gradients["thunder:training"], *torch.autograd.grad(eager(x), x))


# ---------------------------------------------------------------- inference, decoding


@pytest.fixture(scope="module")
def llama() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    words = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads, **words)).eval()


def generated(model: Any, length: int, **options: Any) -> torch.Tensor:
    prompt = torch.randint(3, 90, (1, length), generator=torch.Generator().manual_seed(length))
    tokens = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    result: torch.Tensor = model.generate(prompt, attention_mask=torch.ones_like(prompt), **tokens, **options)
    return result


@pytest.mark.slow
def test_inference_compiles_one_program_for_prompts_and_one_for_steps(llama: Any) -> None:
    compiled = thunder.jit(copy.deepcopy(llama), config="thunder:inference", allow_recompiles=False)
    with thunder.warm_up(compiled):
        generated(compiled, 5)
    for length in (5, 8, 11):
        assert torch.equal(generated(compiled, length), generated(llama, length))
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.slow
def test_decoding_merges_linear_layers_and_keeps_the_sizes_of_a_static_cache(llama: Any) -> None:
    static = {"cache_implementation": "static", "disable_compile": True}
    expected, linears = generated(llama, 5, **static), {}
    for recipe in ("default", "thunder:decoding"):
        compiled = thunder.jit(copy.deepcopy(llama), config=recipe)
        assert torch.equal(generated(compiled, 5, **static), expected)
        step = thunder.last_traces(compiled)[-1]
        linears[recipe] = sum("linear" in op.symbol.name for op in step.symbols)
        entries = thunder.explain(compiled).entries
    assert len(entries) == 2
    assert all(entry.sizes is None for entry in entries)
    assert linears["thunder:decoding"] < linears["default"]
