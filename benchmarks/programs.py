"""Programs of the benchmarks that do not take ``--model``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.models import catalogue
from benchmarks.tasks import WithLoss

Program = Callable[..., Any]
Case = tuple[Program, tuple[Any, ...]]
"""A program and its arguments."""


def small_arithmetic() -> Case:
    """``relu(a * b + a).sum()`` on 4x4: almost only overhead."""

    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(a * b + a).sum()

    return program, (torch.randn(4, 4), torch.randn(4, 4))


def linear_chain() -> Case:
    """Eight layers of ``Linear(16, 16)``: overhead with parameters and guards on modules."""
    return nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)]).eval(), (torch.randn(4, 16),)


def llama_7b_on_meta(layers: int = 32) -> Case:
    """LitGPT's Llama-2-7B on the meta device; input 1x512."""
    import litgpt

    with torch.device("meta"):
        model = litgpt.GPT(litgpt.Config.from_name("Llama-2-7b-hf", n_layer=layers)).eval()
        return model, (torch.zeros(1, 512, dtype=torch.int64),)


def small_llama(layers: int = 8, sequence: int = 64) -> Case:
    """A Llama with the structure of the 7B model and small sizes."""
    model = _small_litgpt(layers)
    return model, (torch.randint(0, 1024, (1, sequence)),)


def small_llama_decode() -> Case:
    """One decoding step with a filled KV cache, which writes to buffers of the model."""
    model = _small_litgpt(8)
    model.max_seq_length = 128
    model.set_kv_cache(batch_size=1)
    with torch.no_grad():
        model(torch.randint(0, 1024, (1, 64)), torch.arange(64))
    return model, (torch.randint(0, 1024, (1, 1)), torch.tensor([64]))


def _small_litgpt(layers: int) -> Any:
    import litgpt  # noqa: F401  # the whole package, as users do; the catalogue would import two of its files

    return catalogue.make("small-llama", {"layers": layers}).module.eval()


def residual_network() -> Case:
    """A ResNet-like CNN with in-place ReLUs and residual additions."""
    return catalogue.make("resnet", {}).module.eval(), (torch.randn(4, 3, 64, 64),)


def bert() -> Case:
    """Hugging Face's BERT, four layers, random weights."""
    import transformers

    sizes = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1024}
    config = transformers.BertConfig(num_hidden_layers=4, **sizes)
    return transformers.BertModel(config).eval(), (torch.randint(0, 1024, (2, 128)),)


def small_llama_training(layers: int = 8, sequence: int = 64) -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """`small_llama` and its loss, in training mode."""
    model, (tokens,) = small_llama(layers, sequence)
    return WithLoss(model).train(), (tokens, torch.randint(0, 1024, tokens.shape))


def tiny_llama_block(sequence: int = 512, **sizes: int) -> Case:
    """One block of LitGPT's TinyLlama 1.1B, in training mode; the input requires grad."""
    import litgpt

    model = litgpt.GPT(litgpt.Config.from_name("tiny-llama-1.1b", n_layer=1, padded_vocab_size=64, **sizes))
    hidden = torch.randn(1, sequence, model.config.n_embd, requires_grad=True)
    rotation = (model.cos[:sequence].unsqueeze(0), model.sin[:sequence].unsqueeze(0))
    return model.transformer.h[0].train(), (hidden, *rotation)


def bert_training(sequence: int = 128, **sizes: int) -> Case:
    """Hugging Face's BERT with default sizes (12 layers), random weights and dropout, in training mode; batch 2."""
    import transformers

    config = transformers.BertConfig(**sizes)
    return transformers.BertModel(config).train(), (torch.randint(0, config.vocab_size, (2, sequence)),)
