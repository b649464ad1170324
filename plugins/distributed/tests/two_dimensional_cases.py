"""Modules under tensor parallelism and `fully_shard`, in four processes: compiled against eager PyTorch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from fully_shard_cases import train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint


class Mlp(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 12)
        self.down = nn.Linear(12, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.ModuleList([Mlp() for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        for block in self.blocks:
            x = block(x)
        return x


def build(model: nn.Module | None = None, **options: Any) -> Any:
    """Blocks, each of tensor parallelism and sharded, in a mesh of two dimensions."""
    mesh = init_device_mesh(
        torch.get_default_device().type, (2, dist.get_world_size() // 2), mesh_dim_names=("dp", "tp")
    )
    model = Blocks() if model is None else model
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"], **options)
    return fully_shard(model, mesh=mesh["dp"], **options)


def batches(model: Any, count: int) -> torch.Tensor:
    """A batch that ranks of tensor parallelism share."""
    generator = torch.Generator().manual_seed(10 * count + dist.get_rank() // (dist.get_world_size() // 2))
    x = torch.randn(6, 4, generator=generator, device="cpu").to(torch.get_default_device())
    return model(x).float().square().mean()


def zero_3() -> None:
    train(lambda: build(reshard_after_forward=True), step=batches)


def zero_2() -> None:
    train(lambda: build(reshard_after_forward=False), step=batches)


def mixed_precision() -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    train(lambda: build(mp_policy=policy), step=batches)


class Checkpointed(Blocks):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.first(x))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def activation_checkpointing() -> None:
    train(lambda: build(Checkpointed(), reshard_after_forward=True), step=batches)


CASES = {case.__name__: case for case in (zero_3, zero_2, mixed_precision, activation_checkpointing)}
