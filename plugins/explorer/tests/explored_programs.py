"""The programs of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_fusion import FusionExecutor

HOSTILE = (
    "</script><script>document.title='injected'</script><img src=x onerror=\"document.title='injected'\">&amp;\u2028"
)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(8)
        self.up = torch.nn.Linear(8, 16)
        self.down = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.silu(self.up(self.norm(x))))


class Layers(torch.nn.Module):
    def __init__(self, number: int = 5) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer() for _ in range(number)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Hostile(torch.nn.Module):
    """The name of a submodule, a value that is guarded and a line of source contain markup."""

    def __init__(self) -> None:
        super().__init__()
        self.text = HOSTILE
        self.add_module(HOSTILE.replace(".", ""), torch.nn.Linear(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.text == "</script><script>document.title='injected'</script>":
            return x
        for child in self.children():
            x = child(x)  # <img src=x onerror="document.title='injected'">
        return x


class _Region:
    """A region that PyTorch runs, with a text as its generated code."""

    def __init__(self, region: Trace) -> None:
        self.call = compile_trace(region)
        self.text = f"// kernel of {len(region.symbols)} ops\n{region.python()}"

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        results: Sequence[Any] = self.call(*inputs)
        return results

    def generated_code(self) -> str:
        return self.text


class Activations(FusionExecutor):
    """Fuses activations and additions; declines everything else."""

    name = "activations"
    smallest = 1

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        if bound.symbol.name.split(".")[-1] in ("silu", "add"):
            return True
        return "its rows of <b>16</b> are too long" if "rms_norm" in bound.symbol.name else "it is no activation"

    def fuse(self, region: Trace) -> Callable[..., Sequence[Any]]:
        return _Region(region)
