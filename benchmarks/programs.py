"""The programs that are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    import litgpt

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


def _small_litgpt(layers: int) -> litgpt.GPT:
    import litgpt

    sizes = {"n_head": 8, "n_embd": 256, "intermediate_size": 688, "padded_vocab_size": 1024, "block_size": 512}
    return litgpt.GPT(litgpt.Config.from_name("Llama-2-7b-hf", n_layer=layers, **sizes)).eval()


def residual_network() -> Case:
    """A ResNet-like CNN whose ReLUs and residual additions are in place."""
    width = 32
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        *[_ResidualBlock(width) for _ in range(6)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 10),
    )
    return model.eval(), (torch.randn(4, 3, 64, 64),)


class _ResidualBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.activation(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        y += x
        return self.activation(y)


def bert() -> Case:
    """Hugging Face's BERT, four layers, random weights."""
    import transformers

    config = transformers.BertConfig(
        hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, vocab_size=1024
    )
    return transformers.BertModel(config).eval(), (torch.randint(0, 1024, (2, 128)),)
