"""Small executors with derivatives, and their kernels: in NumPy, which fake tensors cannot run, or PyTorch.

The kernels count their calls in `CALLS`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.executors import Claimed, Decision, Declined, DerivativePair, Executor
from thunder_core.ir.bound_symbol import BoundSymbol

CALLS: Counter[str] = Counter()


def rms_norm_forward(x: torch.Tensor, shape: Any, weight: torch.Tensor, eps: float) -> Any:
    CALLS["rms_norm_forward"] += 1
    scale = 1 / (torch.from_numpy(x.detach().numpy() ** 2).mean(-1, keepdim=True) + eps).sqrt()
    return x * scale * weight, (x, weight, scale, len(shape))


def rms_norm_fake(x: torch.Tensor, shape: Any, weight: torch.Tensor, eps: float) -> Any:
    return torch.empty_like(x), (x, weight, x.new_empty(*x.shape[:-1], 1), len(shape))


def rms_norm_backward(residuals: Any, cotangents: Any, wanted: tuple[bool, ...]) -> Any:
    CALLS["rms_norm_backward"] += 1
    CALLS["rms_norm_wanted"] += sum(wanted)
    (x, weight, scale, dimensions), (cotangent,) = residuals, cotangents
    assert dimensions == 1
    normalized, inner = x * scale, cotangent * weight
    of_x = (inner - normalized * (inner * normalized).mean(-1, keepdim=True)) * scale if wanted[0] else None
    of_weight = (cotangent * normalized).reshape(-1, x.shape[-1]).sum(0) if wanted[1] else None
    return of_x, of_weight


def silu_forward(x: torch.Tensor) -> Any:
    gate = torch.sigmoid(x)
    return x * gate, (gate, x)


def silu_backward(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (gate, x), (cotangent,) = residuals, cotangents
    return (cotangent * (gate + x * gate * (1 - gate)),)


def product_forward(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x * y, (x, y)


def product_backward(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (x, y), (cotangent,) = residuals, cotangents
    return cotangent * y if wanted[0] else None, cotangent * x if wanted[1] else None


RMS_NORM = DerivativePair(rms_norm_forward, rms_norm_backward, rms_norm_fake)
SILU = DerivativePair(silu_forward, silu_backward)
PRODUCT = DerivativePair(product_forward, product_backward)


@dataclass(frozen=True, eq=False)
class Kernels(Executor):
    """Claims the symbols of ``pairs``, and gives their pairs.

    Attributes:
        limit: inputs with fewer elements are declined.
        asked: number of queries by symbol.
    """

    name: str
    pairs: dict[str, DerivativePair | None]
    limit: int = 0
    asked: Counter[str] = field(default_factory=Counter)

    def claim(self, bound: BoundSymbol) -> Decision:
        if bound.symbol.name not in self.pairs:
            return Declined(self.name, "there is no kernel for it")
        if math.prod(bound.inputs()[0].shape) < self.limit:
            return Declined(self.name, "it is too small")
        return Claimed(self.name)

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        self.asked[bound.symbol.name] += 1
        return self.pairs[bound.symbol.name]


@dataclass(frozen=True)
class ForwardOnly(Executor):
    """Claims one symbol, and knows nothing of derivatives."""

    name: str
    symbol: str

    def claim(self, bound: BoundSymbol) -> Decision:
        return Claimed(self.name) if bound.symbol.name == self.symbol else Declined(self.name, "no")
