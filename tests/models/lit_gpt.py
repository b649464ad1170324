"""LitGPT models, one row each: a known configuration made tiny; weights are random."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tests.models.inputs import VOCABULARY

_TINY: dict[str, Any] = {
    "n_layer": 2, "n_head": 4, "n_embd": 32, "head_size": 8, "intermediate_size": 48, "block_size": 32,
    "vocab_size": VOCABULARY, "padded_vocab_size": VOCABULARY,
}  # fmt: skip
_GROUPED = {**_TINY, "n_query_groups": 2}


@dataclass(frozen=True)
class Row:
    """A model to test.

    Attributes:
        name: name of the LitGPT configuration it derives from.
        options: what makes it tiny.
        may_refuse: cases in which the program branches on values of its inputs, so that a DataDependentError is right
            too: of a mixture of experts all, of a sliding window with a ring buffer the decoding.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    may_refuse: tuple[str, ...] = ()

    def build(self) -> torch.nn.Module:
        """The model with random weights from a fixed seed, in evaluation mode."""
        from litgpt import GPT, Config

        torch.manual_seed(0)
        model: torch.nn.Module = GPT(Config.from_name(self.name, **self.options))
        return model.eval()


ROWS: dict[str, Row] = {
    "pythia": Row("pythia-14m", _TINY),
    "llama2": Row("Llama-2-7b-hf", _TINY),
    "llama3": Row("Llama-3-8B", _GROUPED),
    "llama3.2": Row("Llama-3.2-1B", _GROUPED),
    "mistral": Row("Mistral-7B-v0.1", _GROUPED, may_refuse=("decode",)),
    "gemma": Row("Gemma-2b", {**_TINY, "n_query_groups": 1}),
    "gemma2": Row("Gemma-2-2b", {**_GROUPED, "sliding_window_size": 4}, may_refuse=("decode",)),
    "gemma3": Row("Gemma-3-1b-it", {**_GROUPED, "sliding_window_size": 4, "sliding_window_indices": [1, 0],
                                    "rope_indices": [1, 0]}, may_refuse=("decode",)),
    "phi2": Row("phi-2", _TINY),
    "phi3": Row("Phi-3-mini-4k-instruct", _TINY, may_refuse=("decode",)),
    "falcon": Row("falcon-7b", {**_TINY, "n_query_groups": 1}),
    "qwen2.5": Row("Qwen2.5-0.5B", _GROUPED),
    "qwen3": Row("Qwen3-0.6B", _GROUPED),
    "olmo2": Row("OLMo-2-1124-7B", {**_TINY, "n_query_groups": 4}),
    "stablelm": Row("stablelm-base-alpha-3b", _TINY),
    "mixtral": Row("Mixtral-8x7B-v0.1",
                   {**_GROUPED, "n_expert": 4, "n_expert_per_token": 2, "moe_intermediate_size": 48},
                   may_refuse=("forward", "training", "decode")),
}  # fmt: skip
