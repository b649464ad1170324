"""Generation of text: tokens and random state as in eager PyTorch, from a few programs for any number of tokens."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from tests.models import hugging_face, lit_gpt
from tests.models.inputs import VOCABULARY

NEW_TOKENS = 40
PROMPTS = ((5, 0), (9, 0), (7, 2))
"""Length of the prompts, and how many tokens of the first one are padding, at the left."""
WITH_PADDING = 3
"""Programs of the first prompt with padding: transformers 5.24 gives models no mask without padding, 5.3 does."""
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "temperature": 0.7, "top_k": 10},
    "beams": {"do_sample": False, "num_beams": 3},
}
ARCHITECTURES = ("llama", "gemma3", "gpt2", "mistral", "phi", "qwen2")
"""Gemma3's cache and Mistral's count the tokens that they have seen; Gemma3 has layers of two kinds."""


def _prompt(length: int, padding: int) -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones_like(tokens)
    tokens[0, :padding] = mask[0, :padding] = 0
    return {"input_ids": tokens, "attention_mask": mask}


def _compilations(
    compiled: Any, eager: Any, generate: Callable[[Any, int, int], torch.Tensor], prompts: tuple[tuple[int, int], ...]
) -> list[int]:
    """How many programs there are after each prompt."""
    counts = []
    for length, padding in prompts:
        found = []
        for model in (compiled, eager):
            torch.manual_seed(length)
            found.append((generate(model, length, padding), torch.get_rng_state()))
        (tokens, state), (expected, expected_state) = found
        assert torch.equal(tokens, expected)
        assert torch.equal(state, expected_state)
        counts.append(thunder.cache_misses(compiled))
    assert not thunder.explain(compiled).fallbacks
    return counts


def _hugging_face(name: str, **options: Any) -> list[int]:
    model = hugging_face.ROWS[name].build()
    eager = copy.deepcopy(model)

    def generate(model: Any, length: int, padding: int) -> torch.Tensor:
        tokens = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="transformers")
            result: torch.Tensor = model.generate(**_prompt(length, padding), **tokens, **options)
        return result

    return _compilations(thunder.jit(model), eager, generate, PROMPTS)


# The model does not see where a token comes from: every second architecture is greedy, and the others sample.
DYNAMIC = [
    (name, mode) for number, name in enumerate(ARCHITECTURES) for mode in (("greedy", "sampling")[number % 2], "beams")
]
TYPICAL = [("llama", "greedy"), ("gemma3", "sampling"), ("gpt2", "beams")]


@pytest.mark.parametrize(("name", "mode"), TYPICAL)
@pytest.mark.slow
def test_dynamic_cache(name: str, mode: str) -> None:
    check_dynamic_cache(name, mode)


@pytest.mark.parametrize(("name", "mode"), [case for case in DYNAMIC if case not in TYPICAL])
@pytest.mark.battery
def test_dynamic_caches(name: str, mode: str) -> None:
    check_dynamic_cache(name, mode)


def check_dynamic_cache(name: str, mode: str) -> None:
    first, second, third = _hugging_face(name, **MODES[mode])
    assert first <= 4
    assert second <= first + 1
    assert third <= second + WITH_PADDING


@pytest.mark.slow
def test_static_cache() -> None:
    check_static_cache("llama", "greedy")


@pytest.mark.parametrize(("name", "mode"), [("gemma3", "beams"), ("mistral", "sampling")])
@pytest.mark.battery
def test_static_caches(name: str, mode: str) -> None:
    check_static_cache(name, mode)


def check_static_cache(name: str, mode: str) -> None:
    """A cache of another size is made for the second prompt, and used again for the third."""
    first, second, third = _hugging_face(name, cache_implementation="static", **MODES[mode])
    assert first <= 4
    assert second <= first + 2
    assert third <= second + WITH_PADDING


@pytest.mark.slow
def test_encoder_and_decoder() -> None:
    check_encoder_and_decoder("beams")


@pytest.mark.parametrize("mode", ["greedy", "sampling"])
@pytest.mark.battery
def test_encoder_and_decoder_in_other_modes(mode: str) -> None:
    check_encoder_and_decoder(mode)


def check_encoder_and_decoder(mode: str) -> None:
    """T5 adds biases to scores in place: sizes of two caches, which are equal from then on."""
    counts = _hugging_face("t5", **MODES[mode])
    assert counts[0] <= 4
    assert counts[2] <= 8


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pythia", {"temperature": 0.0}),
        ("gemma", {"temperature": 0.8, "top_p": 0.9}),
        ("mistral", {"top_k": 5}),
    ],
)
@pytest.mark.slow
def test_lit_gpt(name: str, options: dict[str, Any]) -> None:
    check_lit_gpt(name, options)


@pytest.mark.parametrize(("name", "options"), [("llama3", {"top_k": 5}), ("qwen3", {"temperature": 0.0})])
@pytest.mark.battery
def test_others_of_lit_gpt(name: str, options: dict[str, Any]) -> None:
    check_lit_gpt(name, options)


def check_lit_gpt(name: str, options: dict[str, Any]) -> None:
    from litgpt.generate.base import generate

    model = lit_gpt.ROWS[name].build()
    eager = copy.deepcopy(model)
    compiled = thunder.jit(model)
    for each in (compiled, eager):
        each.set_kv_cache(batch_size=1)

    def run(model: Any, length: int, padding: int) -> torch.Tensor:
        prompt = torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(length))
        result: torch.Tensor = generate(model, prompt, 30, **options)
        return result

    first, second, third = _compilations(compiled, eager, run, PROMPTS)
    assert first <= 2
    assert second <= first + 1
    assert third == second
