"""Settings for all tests of the package, and executors that are wrong in one thing."""

from __future__ import annotations

import os

os.environ.setdefault("THUNDER_VERIFY", "1")  # every trace is checked after each transform

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from thunder_core.executors import Claim, DerivativePair, OperatorExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_fusion import FusionExecutor

torch.set_num_threads(1)


def _gelu_off(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return F.gelu(x, approximate=approximate) + 1e-2


def _silu(x: torch.Tensor) -> Any:
    gate = torch.sigmoid(x)
    return x * gate, (gate, x)


def _silu_gradient(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    (gate, x), (cotangent,) = residuals, cotangents
    return (cotangent * (gate + x * gate * (1 - gate)),)


def _silu_gradient_off(residuals: Any, cotangents: Any, wanted: Any) -> Any:
    return (_silu_gradient(residuals, cotangents, wanted)[0] * 1.01,)


SILU = DerivativePair(_silu, _silu_gradient)


@dataclass(frozen=True)
class WrongFusion(FusionExecutor):
    """Fuses elementwise lines; of the operations called ``wrong`` its results are too great by ``error``."""

    name: str = "wrong_fusion"
    wrong: tuple[str, ...] = ()
    error: float = 1e-2

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        return Tag.ELEMENTWISE in bound.symbol.tags or "it is not elementwise"

    def fuse(self, region: Trace) -> Callable[..., Any] | str:
        lines = [self._changed(bound) if bound.symbol.name in self.wrong else bound for bound in region.symbols]
        return compile_trace(region.with_symbols(lines, "wrong_fusion"))

    def _changed(self, bound: BoundSymbol) -> BoundSymbol:
        target, error = bound.symbol.target, self.error
        return replace(bound, symbol=Symbol("off", lambda *args, **kwargs: target(*args, **kwargs) + error))


@pytest.fixture
def wrong_gelu() -> OperatorExecutor:
    """Claims GELU, and is off by 1e-2."""
    return OperatorExecutor("wrong_gelu", (Claim(F.gelu, run=_gelu_off),))


@pytest.fixture
def right_silu() -> OperatorExecutor:
    """A derivative pair that is right."""
    return OperatorExecutor("right_silu", (Claim(F.silu, derivative=SILU),))


@pytest.fixture
def wrong_silu() -> OperatorExecutor:
    """A derivative pair whose backward is off by a hundredth."""
    return OperatorExecutor("wrong_silu", (Claim(F.silu, derivative=DerivativePair(_silu, _silu_gradient_off)),))


@pytest.fixture
def fusion() -> Callable[..., WrongFusion]:
    """``fusion("torch.mul")`` fuses elementwise lines and is wrong in products, by ``error``."""
    return lambda *wrong, **options: WrongFusion(wrong=wrong, **options)


class Network(nn.Module):
    """Dropout, a buffer that is written, views and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        hidden = F.silu(F.gelu(self.norm(self.first(x))))
        hidden = F.dropout(hidden, 0.3, self.training)
        return self.last(hidden).t().square().mean()


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network()
