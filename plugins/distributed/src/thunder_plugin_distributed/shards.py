"""This rank's part of a sharded parameter, as an input of a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.guards.source import Args, Kwargs, Names
from thunder_core.guards.steps import StepSource
from thunder_plugin_distributed import pytorch_internals


class _Shard(torch.autograd.Function):
    """As `DTensor.to_local`, and a parameter without a gradient stays without one in all versions of PyTorch."""

    @staticmethod
    def forward(ctx: Any, parameter: Any) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.spec = parameter._spec
        shard: torch.Tensor = parameter._local_tensor
        return shard.view_as(shard)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return None if gradient is None else pytorch_internals.from_local_no_grad(gradient.detach(), ctx.spec)


def shard_of(parameter: Any) -> torch.Tensor:
    """The local tensor of a DTensor; the gradient of the DTensor is one, as in eager."""
    with torch.enable_grad():
        shard: torch.Tensor = _Shard.apply(parameter)
    return shard


@dataclass(frozen=True, slots=True)
class ShardSource(StepSource):
    """`shard_of` the DTensor ``base``.

    Attributes:
        parameter: what the user calls it: ``module.layer.weight``.
    """

    parameter: str = field(default="", compare=False)

    def describe(self) -> str:
        return f"{self.parameter or self.base.describe()}.shard"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return shard_of(self.base.read(args, kwargs))

    def step(self, base: str, names: Names) -> str:
        return f"{names.constant(shard_of, 'shard_of')}({base})"
