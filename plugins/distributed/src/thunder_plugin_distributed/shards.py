"""This rank's part of a sharded parameter, as an input of a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.guards.source import Args, Kwargs, Names
from thunder_core.guards.steps import StepSource


def shard_of(parameter: Any) -> torch.Tensor:
    """The local tensor of a DTensor; the gradient of the DTensor is one, as in eager."""
    with torch.enable_grad():
        shard: torch.Tensor = parameter.to_local()
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
