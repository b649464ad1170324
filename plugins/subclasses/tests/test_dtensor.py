"""DTensor in a world of one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from wrapper_classes import assert_same, numbers

import thunder


@pytest.fixture
def mesh() -> Iterator[Any]:
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        torch.distributed.destroy_process_group()


def test_distributed_tensors(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def program(x: Any, weight: Any) -> tuple[Any, Tensor]:
        y = F.linear(x, weight).relu()
        return y, y.to_local() * 2

    compiled = thunder.jit(program)
    for seed in (0, 1):
        x = distribute_tensor(numbers(4, 4, seed=seed), mesh, [Replicate()])
        weight = distribute_tensor(numbers(6, 4), mesh, [Shard(0)])
        (found, local), (expected, expected_local) = compiled(x, weight), program(x, weight)
        assert found.placements == expected.placements
        assert_same([found.to_local(), local], [expected.to_local(), expected_local])
    assert thunder.cache_misses(compiled) == 1
    other = distribute_tensor(numbers(6, 4), mesh, [Replicate()])
    assert compiled(x, other)[0].placements == program(x, other)[0].placements
    assert thunder.cache_misses(compiled) == 2


def test_gradients_of_distributed_tensors(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, distribute_tensor

    def program(x: Any, weight: Any) -> Any:
        return F.linear(x, weight).relu()

    compiled = thunder.jit(program)
    for _ in range(2):
        x = distribute_tensor(numbers(4, 4), mesh, [Replicate()])
        weights = [distribute_tensor(numbers(6, 4), mesh, [Replicate()]).requires_grad_() for _ in range(2)]
        for run, weight in zip((program, compiled), weights, strict=True):
            run(x, weight).sum().backward()
        assert weights[0].grad.placements == weights[1].grad.placements
        assert_same(weights[0].grad.to_local(), weights[1].grad.to_local())
