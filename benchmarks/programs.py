"""The programs that are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.models import catalogue

Program = Callable[..., Any]
Case = tuple[Program, tuple[Any, ...]]
"""A program and the arguments it is called with."""


def small_arithmetic() -> Case:
    """``relu(a * b + a).sum()`` on 4x4: nearly nothing but overhead."""

    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(a * b + a).sum()

    return program, (torch.randn(4, 4), torch.randn(4, 4))


def linear_chain() -> Case:
    """Eight layers of ``Linear(16, 16)``: overhead with parameters and guards on modules."""
    return nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)]).eval(), (torch.randn(4, 16),)


def llama_7b_on_meta(layers: int = 32) -> Case:
    """Llama-2-7B as LitGPT writes it, without data; input 1x512."""
    import litgpt

    with torch.device("meta"):
        model = litgpt.GPT(litgpt.Config.from_name("Llama-2-7b-hf", n_layer=layers)).eval()
        return model, (torch.zeros(1, 512, dtype=torch.int64),)


def small_llama(layers: int = 8, sequence: int = 64) -> Case:
    """A Llama with the 7B's structure and small sizes."""
    model = _small_litgpt(layers)
    return model, (torch.randint(0, 1024, (1, sequence)),)


def small_llama_decode() -> Case:
    """One step of decoding with a filled KV cache: buffers of the model are written."""
    model = _small_litgpt(8)
    model.max_seq_length = 128
    model.set_kv_cache(batch_size=1)
    with torch.no_grad():
        model(torch.randint(0, 1024, (1, 64)), torch.arange(64))
    return model, (torch.randint(0, 1024, (1, 1)), torch.tensor([64]))


def _small_litgpt(layers: int) -> Any:
    import litgpt  # noqa: F401  # as a whole, as users do; the catalogue would take two files of it

    return catalogue.make("small-llama", {"layers": layers}).module.eval()


def residual_network() -> Case:
    """A ResNet-like CNN whose ReLUs and residual additions are in place."""
    return catalogue.make("resnet", {}).module.eval(), (torch.randn(4, 3, 64, 64),)


def bert() -> Case:
    """Hugging Face's BERT, four layers, random weights."""
    import transformers

    sizes = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1024}
    config = transformers.BertConfig(num_hidden_layers=4, **sizes)
    return transformers.BertModel(config).eval(), (torch.randint(0, 1024, (2, 128)),)
