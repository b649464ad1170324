"""Functions and modules for testing transforms, with constructs that transforms tend to get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional as F

from thunder_testing.compare import Arguments


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Elementwise operations."""
    return torch.sin(x) * y + torch.exp(-x * x)


def repeated(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Equal calls, some under another mode, and a result that is an argument."""
    return torch.exp(x) * y, torch.exp(x) + y, torch.exp(x.detach()), x + 0


def constants(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Values that depend on no input."""
    steps = torch.arange(4, dtype=x.dtype) / torch.full((4,), 3.0)
    return x * steps + torch.eye(4)[1] * y


def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Writes to an argument and to an intermediate value."""
    state = x.detach()
    state.add_(1).mul_(2)
    scratch = y * 2
    scratch[0] = 0
    scratch.clamp_(min=-1)
    return scratch + state


def views(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Writes through views, and results that are views."""
    work = y * 1
    work.t()[0].mul_(3)
    work[1:, ::2] += 1
    return work, work.t(), x[1], torch.cat([work, x]).view(-1)


def containers(x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    """A nested result with an argument, a number and None."""
    parts = (x * y).chunk(2)
    return {"parts": list(parts), "argument": x, "number": len(parts), "nothing": None, "nested": (parts[0].sum(),)}


def dtypes(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Results of several dtypes."""
    return (x > y) & (y < 1), x.to(torch.bfloat16) * y.to(torch.bfloat16), (x * 8).to(torch.int64), x.sum() * 2


def without_grad(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A part without gradients."""
    with torch.no_grad():
        scale = (x * y).abs().amax()
    return x / (scale + 1) + y.detach()


FUNCTIONS = (pointwise, repeated, constants, in_place, views, containers, dtypes, without_grad)


class Normalized(nn.Module):
    """Layers with statistics, which are buffers that training writes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.batch = nn.BatchNorm1d(6)
        self.layer = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normalized: torch.Tensor = self.layer(torch.relu(self.batch(self.linear(x))))
        return normalized


class Attention(nn.Module):
    """A transformer block with a causal mask, which depends on no input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.project = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(self.norm(x)).view(*x.shape[:-1], 3, 2, 4).permute(2, 0, 3, 1, 4)
        length = x.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        scores = (query @ key.transpose(-2, -1) / 2).masked_fill(~mask, -1e9)
        mixed = (torch.softmax(scores, -1) @ value).transpose(1, 2).reshape(x.shape)
        projected: torch.Tensor = self.out(mixed)
        return x + projected


class Counting(nn.Module):
    """A buffer that each call writes, and an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(()))
        self.weight = nn.Parameter(torch.linspace(-1, 1, 4))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        return {"result": x * self.weight, "calls": self.calls * 2}


class Dropping(nn.Module):
    """Random numbers in a fixed order."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = F.dropout(F.gelu(self.first(x)), 0.5, self.training)
        return self.second(hidden), torch.rand_like(x) + torch.randn(4)


class Tied(nn.Module):
    """One parameter under two names, and a submodule that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.mix = nn.Linear(4, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        logits: torch.Tensor = self.head(torch.tanh(self.mix(torch.tanh(self.mix(hidden)))))
        return logits


def linear_layers() -> nn.Module:
    """Linear layers and activations."""
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 2))


@dataclass(frozen=True)
class TransformProgram:
    """A program.

    Attributes:
        name: its name in test ids.
        make: returns the function or the module; a module has the same parameters each time.
        arguments: returns the arguments of a call; random ones depend on the seed.
    """

    name: str
    make: Callable[[], Callable[..., Any]]
    arguments: Callable[[], Arguments | tuple[Any, ...]]

    @property
    def is_module(self) -> bool:
        """Whether it is a module."""
        return isinstance(self.make(), nn.Module)


_MODULES: Final[Mapping[type[nn.Module], tuple[int, ...]]] = {
    Normalized: (5, 4),
    Attention: (2, 3, 8),
    Counting: (3, 4),
    Dropping: (3, 4),
}


def transform_programs() -> Iterator[TransformProgram]:
    """All programs."""
    for function in FUNCTIONS:
        yield TransformProgram(function.__name__, _itself(function), _two_matrices)
    yield TransformProgram("linear_layers", _seeded(linear_layers), _random(3, 4))
    for module, shape in _MODULES.items():
        yield TransformProgram(module.__name__.lower(), _seeded(module), _random(*shape))
    yield TransformProgram("tied", _seeded(Tied), _tokens)


def _itself(function: Callable[..., Any]) -> Callable[[], Callable[..., Any]]:
    return lambda: function


def _seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make()

    return made


def _random(*shape: int) -> Callable[[], Arguments]:
    return lambda: Arguments(torch.randn(shape))


def _two_matrices() -> Arguments:
    return Arguments(torch.randn(4, 4), torch.randn(4, 4))


def _tokens() -> Arguments:
    return Arguments(torch.randint(0, 10, (2, 5)))
