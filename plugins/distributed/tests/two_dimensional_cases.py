"""Modules under tensor parallelism and `fully_shard`, in four processes: compiled against eager PyTorch."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from accumulation_cases import no_sync
from fully_shard_cases import BUILDS, STEPS, Net, inputs, sharded, train
from partial_gradient_cases import without_all_reduce
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint

from thunder_core.errors import UncacheableWarning


class Mlp(nn.Module):
    def __init__(self, width: int, rows: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, rows)
        self.down = nn.Linear(rows, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Blocks(nn.Module):
    def __init__(self, rows: int = 12) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = nn.ModuleList([Mlp(8, rows) for _ in range(2)])

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


class Tied(Blocks):
    """The first layer's weight is used twice, by two modules of the outer group."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 8)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.last(x)


class Unused(Blocks):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(3, 3)


def partly_frozen() -> nn.Module:
    model = Blocks()
    model.first.requires_grad_(False)
    model.blocks[0].up.requires_grad_(False)
    return model


def shared() -> None:
    train(lambda: build(Tied()), step=batches)


def unused() -> None:
    train(lambda: build(Unused()), step=batches)


def frozen() -> None:
    train(lambda: build(partly_frozen()), step=batches)


def uneven() -> None:
    """Ten rows: five for each rank of tensor parallelism, of which one shard has three and the other two."""
    train(lambda: build(Blocks(10), reshard_after_forward=True), step=batches)


POLICIES = (MixedPrecisionPolicy(), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def accumulation(policy: MixedPrecisionPolicy = POLICIES[1]) -> None:
    """Two calls without a reduction before one with."""

    def step(model: Any, count: int) -> torch.Tensor:
        for part in (1, 2):
            with no_sync(model):
                batches(model, count + 10 * part).backward()
        return batches(model, count)

    train(lambda: build(mp_policy=policy), step=step, compilations=2)


def mesh_of_replicas() -> Any:
    return init_device_mesh(torch.get_default_device().type, (2, 2), mesh_dim_names=("replicate", "shard"))


def hybrid(model: str) -> None:
    """HSDP with two replicas of two shards. Policies alternate; `hybrid_of_model` has all pairs."""
    policy = POLICIES[list(BUILDS).index(model) % 2]
    train(
        lambda: sharded(BUILDS[model](), mesh=mesh_of_replicas(), mp_policy=policy),
        step=lambda model, count: model(inputs(count)).float().square().mean(),
    )


def partial_gradients_of_replicas() -> None:
    train(
        lambda: sharded(BUILDS["uneven"](), mesh=mesh_of_replicas(), mp_policy=POLICIES[1]),
        step=without_all_reduce,
        compilations=2,
    )


def resharding_to_fewer_ranks() -> None:
    """``reshard_after_forward`` with a number of ranks: eager PyTorch runs each call."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* a number of ranks is not compiled", UncacheableWarning)
        train(lambda: sharded(Net(blocks=1), reshard_after_forward=2), compilations=STEPS)


KINDS = {
    case.__name__: case
    for case in (
        *(zero_3, mixed_precision, uneven, accumulation, partial_gradients_of_replicas),
        resharding_to_fewer_ranks,
    )
}
OF_MODELS = {
    **{case.__name__: case for case in (zero_2, activation_checkpointing, shared, unused, frozen)},
    "accumulation, float32": partial(accumulation, POLICIES[0]),
    **{f"hybrid, {model}": partial(hybrid, model) for model in BUILDS},
}
CASES = KINDS | OF_MODELS
