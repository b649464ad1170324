"""PyTorch's wrapper subclasses: jagged tensors, and DTensor in a world of one process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder
from tests.subclasses.classes import assert_same, numbers
from thunder_core.errors import UnsupportedError


def jagged(*lengths: int, seed: int = 0) -> Tensor:
    return torch.nested.nested_tensor(
        [numbers(length, 4, seed=seed + place) for place, length in enumerate(lengths)], layout=torch.jagged
    )


JAGGED: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x: (x.sin() * 2 + x).values(),
    "returned": lambda x: x * 2,
    "two": lambda x: (x * x.cos()).values(),
    "linear": lambda x: F.linear(x, torch.ones(5, 4)).values(),
    "layer norm": lambda x: F.layer_norm(x, (4,)).values(),
    "sum": lambda x: x.sum(-1).values(),
    "mean": lambda x: x.mean(1),
}


@pytest.mark.parametrize("name", JAGGED)
def test_jagged_tensors(name: str) -> None:
    program = JAGGED[name]
    compiled = thunder.jit(program)
    for seed in (0, 3):
        assert_same(compiled(jagged(2, 3, seed=seed)), program(jagged(2, 3, seed=seed)))
    assert_same(compiled(jagged(1, 4, 2)), program(jagged(1, 4, 2)))


def test_jagged_tensors_that_the_program_makes_have_gradients() -> None:
    def program(values: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
        x = torch.nested.nested_tensor_from_jagged(values, offsets)
        return F.linear(x, weight).sin().values()

    compiled, offsets = thunder.jit(program), torch.tensor([0, 2, 5])
    for _ in range(2):
        given = [(numbers(5, 4).requires_grad_(), numbers(3, 4).requires_grad_()) for _ in range(2)]
        for run, tensors in zip((program, compiled), given, strict=True):
            run(*tensors, offsets).sum().backward()
        assert_same(*given)


def test_attention_over_jagged_tensors_is_refused() -> None:
    def program(x: Tensor) -> Tensor:
        x = x.unflatten(-1, (2, 2)).transpose(1, 2)
        return F.scaled_dot_product_attention(x, x, x).transpose(1, 2).values()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the strided layout, that PyTorch takes for it
        with pytest.raises(UnsupportedError, match="nested tensor of the strided layout"):
            thunder.jit(program)(jagged(2, 3))


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
