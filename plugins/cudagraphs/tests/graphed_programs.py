"""Models for the tests, and two copies of one that are trained in step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_plugin_cudagraphs import CUDAGraphs, ProgramStatistics, statistics


class Network(nn.Module):
    """Products, a normalization, attention, and optionally dropout."""

    def __init__(self, dropout: float = 0.0, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(16, width)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.last = nn.Linear(width, 8)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(F.gelu(self.first(x)))
        query, key, value = self.attention(hidden).chunk(3, -1)
        hidden = hidden + F.scaled_dot_product_attention(query, key, value)
        return self.last(F.dropout(hidden, self.dropout, self.training))


class Normalized(nn.Module):
    """Statistics that each call in training writes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Cached(nn.Module):
    """A cache that is written at a position and read."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 16)
        self.register_buffer("cache", torch.zeros(2, 8, 16))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(1, position, self.project(x))
        return F.scaled_dot_product_attention(x, self.cache, self.cache)


@dataclass
class Pair:
    """A model in eager PyTorch and a copy of it, compiled."""

    eager: nn.Module
    compiled: Any
    optimizers: Sequence[torch.optim.Optimizer] = field(default_factory=tuple)

    @staticmethod
    def of(model: nn.Module, device: str, **options: Any) -> Pair:
        eager = model.to(device)
        compiled = thunder.jit(copy.deepcopy(eager), transforms=[CUDAGraphs(**{"copy_below": 0, **options})])
        # not Adam, which makes gradients that are zero but for rounding as large as the others: biases of keys, for one
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9) for each in (eager, compiled)]
        return Pair(eager, compiled, optimizers)

    def each(self, step: Callable[[Any, torch.optim.Optimizer], Any]) -> Any:
        """Do the same with both, from the same state of the generators; the results must be the same."""
        cpu = torch.get_rng_state()
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        expected = step(self.eager, self.optimizers[0])
        after = torch.cuda.get_rng_state() if cuda is not None else torch.get_rng_state()
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda)
        found = step(self.compiled, self.optimizers[1])
        same(found, expected)
        assert torch.equal(torch.cuda.get_rng_state() if cuda is not None else torch.get_rng_state(), after)
        return found

    def same_state(self) -> None:
        """Parameters, gradients and buffers are equal."""
        own = dict(self.compiled.named_parameters())
        for name, parameter in self.eager.named_parameters():
            same(own[name], parameter)
            same(own[name].grad, parameter.grad)
        same(dict(self.compiled.named_buffers()), dict(self.eager.named_buffers()))

    def statistics(self, phase: str) -> ProgramStatistics:
        """Of the programs of one phase together."""
        found = [one for one in statistics(self.compiled) if one.phase == phase]
        assert found, statistics(self.compiled)
        return ProgramStatistics(
            found[0].name,
            phase,
            sum(one.graphs for one in found),
            sum(one.captures for one in found),
            sum(one.replays for one in found),
            tuple(reason for one in found for reason in one.ungraphed),
            next((one.refused for one in found if one.refused), None),
        )


def same(found: Any, expected: Any) -> None:
    """Equal on the CPU; on a GPU, other kernels may have been chosen."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def ungraphed(statistics: ProgramStatistics) -> dict[str, int]:
    """Calls without a graph by reason, warming up left out."""
    return {reason: count for reason, count in statistics.ungraphed if reason != "it is warming up"}
