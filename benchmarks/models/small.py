"""Small models: a GPT, a residual CNN and an MLP."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models.model import BenchmarkModel, Features, native_settings


class GPT(nn.Module):
    """nanoGPT's GPT-2 (learned positions, pre-layer norm, GELU) for tokens ``(batch, length)``."""

    def __init__(self, layers: int, embedding: int, heads: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, embedding)
        self.positions = nn.Embedding(length, embedding)
        self.blocks = nn.Sequential(*[_Block(embedding, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(embedding)
        self.head = nn.Linear(embedding, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits ``(batch, length, vocabulary)``."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.positions(positions))))


class _Block(nn.Module):
    def __init__(self, embedding: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(embedding)
        self.attention = nn.Linear(embedding, 3 * embedding)
        self.projection = nn.Linear(embedding, embedding)
        self.mlp_norm = nn.LayerNorm(embedding)
        self.mlp = nn.Sequential(nn.Linear(embedding, 4 * embedding), nn.GELU(), nn.Linear(4 * embedding, embedding))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.attention(self.attention_norm(x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class ResidualBlock(nn.Module):
    """Two convolutions with an in-place ReLU and residual addition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor with the shape of ``x``, ``(batch, channels, height, width)``."""
        y = self.activation(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        y += x
        return self.activation(y)


def nanogpt(
    layers: int = 6, embedding: int = 192, heads: int = 6, vocabulary: int = 256, length: int = 1024
) -> BenchmarkModel:
    """nanoGPT's character-level model at half its width; ``length`` is the largest sequence length."""
    return BenchmarkModel(GPT(layers, embedding, heads, vocabulary, length), vocabulary)


def resnet(layers: int = 6, width: int = 32, image: int = 64, classes: int = 10) -> BenchmarkModel:
    """A residual CNN for images of ``image`` x ``image`` pixels."""
    module = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        *[ResidualBlock(width) for _ in range(layers)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )
    return BenchmarkModel(module, classes, Features((3, image, image)))


def mlp(layers: int = 4, width: int = 256, classes: int = 10) -> BenchmarkModel:
    """Linear layers of equal width with GELU and layer norms between."""
    hidden = [nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers)]
    return BenchmarkModel(nn.Sequential(*hidden, nn.Linear(width, classes)), classes, Features((width,)))


MODELS: dict[str, Callable[..., BenchmarkModel]] = {"nanogpt": nanogpt, "resnet": resnet, "mlp": mlp}
WITHOUT_TOKENS = ("resnet", "mlp")
"""Models whose inputs are floating-point tensors instead of tokens."""


def names() -> list[str]:
    """The names of the models."""
    return list(MODELS)


def require_packages(name: str) -> None:
    """These models need PyTorch alone."""


def has_sequences(name: str) -> bool:
    """Whether the inputs of a model have the length of the workload."""
    return name not in WITHOUT_TOKENS


def settings(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a model with their defaults, and an empty dict: it uses the common names of settings."""
    return {key: setting.default for key, setting in inspect.signature(MODELS[name]).parameters.items()}, {}


def make(name: str, overrides: dict[str, Any]) -> BenchmarkModel:
    """The model with its default settings and ``overrides``, on the default device."""
    defaults, words = settings(name)
    return MODELS[name](**native_settings(overrides, words, defaults, name))
