"""Small programs for testing fusion executors, and operations for testing other executors without a table of claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional as F

from thunder_testing.conformance.call import Call
from thunder_testing.conformance.subject import Subject

OPERATIONS: Final = (
    "torch.add", "torch.sub", "torch.mul", "torch.div", "torch.pow", "torch.maximum", "torch.where", "torch.clamp",
    "torch.exp", "torch.log1p", "torch.sin", "torch.tanh", "torch.sigmoid", "torch.rsqrt", "torch.abs", "torch.lt",
    "torch.relu", "torch.nn.functional.gelu", "torch.nn.functional.silu", "torch.sum", "torch.mean", "torch.amax",
    "torch.var", "torch.cumsum", "torch.softmax", "torch.log_softmax", "torch.nn.functional.layer_norm",
    "torch.nn.functional.rms_norm", "torch.matmul", "torch.nn.functional.linear", "torch.cat", "torch.transpose",
    "torch.nn.functional.embedding", "torch.nn.functional.cross_entropy",
    "torch.nn.functional.scaled_dot_product_attention",
)  # fmt: skip
"""Some operations of each kind that models use."""


def pointwise_chain(x: torch.Tensor) -> torch.Tensor:
    """A chain of elementwise operations."""
    return torch.sin(torch.exp(x) * 0.5) + 1


def broadcasting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Operands of different shapes."""
    return (x * y + y) * x[:1]


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One value with two users."""
    y = torch.sigmoid(x)
    return y * x, y + 1


def softmax_by_hand(x: torch.Tensor) -> torch.Tensor:
    """Reductions between elementwise operations."""
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def normalization(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Layer normalization written out."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight


def gated_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Elementwise operations around a matmul."""
    hidden = F.linear(x * 2, weight, bias)
    return F.silu(hidden) * F.gelu(hidden, approximate="tanh")


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention written out."""
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    return torch.softmax(scores, -1) @ value


def selection(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Comparisons, and a result that is not floating-point."""
    positive = x > 0
    return torch.where(positive, x, x * 0.1), positive & (x < 1)


def conversions(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Intermediate values of other dtypes."""
    wide = x.to(torch.float64) * 3
    return wide.to(x.dtype) + (x > 0).to(x.dtype), torch.round(x * 4).to(torch.int64) + 1


def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Results that are views of each other or of the argument."""
    y = x * 2
    return x[1:], y.t(), y[0], torch.cat([y.t(), y.t()]).reshape(-1) + 1


def scalars(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Results without dimensions."""
    total = x.sum()
    return total * 2, x * total


def writes(x: torch.Tensor) -> torch.Tensor:
    """In-place operations on an intermediate value."""
    y = x * 2
    y.add_(1)
    y[0] = y[1] * 3
    return torch.sin(y)


_SHAPES: Final[dict[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    pointwise_chain: ((5, 7),),
    broadcasting: ((5, 1), (1, 7)),
    two_results: ((5, 7),),
    softmax_by_hand: ((5, 7),),
    normalization: ((5, 7), (7,)),
    gated_linear: ((5, 7), (3, 7), (3,)),
    attention: ((2, 5, 4), (2, 6, 4), (2, 6, 3)),
    selection: ((5, 7),),
    conversions: ((5, 7),),
    views: ((5, 7),),
    scalars: ((5, 7),),
    writes: ((5, 7),),
}


def program_subjects() -> list[Subject]:
    """The programs, with their arguments."""
    return [Subject(function.__name__, calls=_Calls(function, shapes)) for function, shapes in _SHAPES.items()]


class _Calls:
    """The call of a program, with fixed shapes."""

    def __init__(self, function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
        self.function, self.shapes = function, shapes

    def __call__(self, device: str, dtype: torch.dtype) -> list[Call]:
        generator = torch.Generator().manual_seed(0)
        tensors = [torch.randn(shape, generator=generator).to(device, dtype) for shape in self.shapes]
        return [Call(f"random tensors of the shapes {', '.join(map(str, self.shapes))}", self.function, tuple(tensors))]
