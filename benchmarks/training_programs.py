"""The programs whose training is measured."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks import programs
from benchmarks.training_task import WithLoss

Case = tuple[nn.Module, tuple[Any, ...]]
"""A module in training mode and the arguments it is called with."""


def small_llama(layers: int = 8, sequence: int = 64) -> Case:
    """The Llama of the compile-time benchmark, with its loss."""
    model, (tokens,) = programs.small_llama(layers, sequence)
    return WithLoss(model).train(), (tokens, torch.randint(0, 1024, tokens.shape))


def tiny_llama_block(sequence: int = 512, **sizes: int) -> Case:
    """One block of TinyLlama 1.1B as LitGPT writes it, with its real sizes; the input requires a gradient."""
    import litgpt

    model = litgpt.GPT(litgpt.Config.from_name("tiny-llama-1.1b", n_layer=1, padded_vocab_size=64, **sizes))
    hidden = torch.randn(1, sequence, model.config.n_embd, requires_grad=True)
    rotation = (model.cos[:sequence].unsqueeze(0), model.sin[:sequence].unsqueeze(0))
    return model.transformer.h[0].train(), (hidden, *rotation)


def bert(sequence: int = 128, **sizes: int) -> Case:
    """Hugging Face's BERT with its default sizes (12 layers), random weights and dropout; batch 2."""
    import transformers

    config = transformers.BertConfig(**sizes)
    return transformers.BertModel(config).train(), (torch.randint(0, config.vocab_size, (2, sequence)),)
