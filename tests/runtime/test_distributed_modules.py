"""Modules that `torch.distributed` prepares: around compiled ones, and inside of compiled programs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.checkpoint_activation import checkpoint
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import thunder
from tests.subjects import SUBJECT, eager
from thunder_core.errors import UncacheableWarning

pytestmark = [
    pytest.mark.skipif(SUBJECT is eager, reason="about compiled modules"),
    pytest.mark.filterwarnings("ignore:.*replicate.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*NO_SHARD.*:FutureWarning"),
]


@pytest.fixture(autouse=True)
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


@pytest.fixture(params=["fully_shard", "replicate"])
def prepare(request: pytest.FixtureRequest, mesh: DeviceMesh) -> Callable[[Any], Any]:
    if request.param == "fully_shard":
        return lambda module: fully_shard(module, mesh=mesh)
    return replicate


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))


def x() -> torch.Tensor:
    return torch.randn(2, 4)


def test_compiled_modules_are_refused_before_anything_changes(model: nn.Sequential, jit: Callable[..., Any]) -> None:
    compiled, value = jit(model), x()
    before, attributes = model(value), {name: copy.copy(held) for name, held in vars(model).items()}
    with pytest.raises(thunder.UnsupportedError, match="cannot be applied to a module that thunder") as error:
        checkpoint(compiled)
    assert "thunder.original" in str(error.value)
    assert type(model) is nn.Sequential
    assert vars(model) == attributes
    assert all(type(parameter) is nn.Parameter for parameter in model.parameters())
    assert torch.equal(compiled(value), before)
    checkpoint(thunder.original(compiled))
    assert torch.equal(model(value), before)


def in_steps(program: Callable[[torch.Tensor], torch.Tensor], model: Any) -> list[torch.Tensor]:
    """Results of three calls, and the gradients that they accumulate."""
    model.zero_grad()
    results = [program(torch.full((2, 4), float(scale))) for scale in range(1, 4)]
    torch.stack(results).square().sum().backward()
    return [*[result.detach() for result in results], *[parameter.grad.clone() for parameter in model.parameters()]]


def test_replicated_modules_run_eagerly(model: nn.Sequential, jit: Callable[..., Any]) -> None:
    later = jit(model)
    expected = in_steps(later, model)
    replicate(model)
    for program in (later, jit(model), jit(nn.Sequential(model)), jit(lambda x: model(x))):
        with pytest.warns(UncacheableWarning, match="calls a module that replicate was applied to"):
            assert all(map(torch.equal, in_steps(program, model), expected))


def test_replicate_around_a_compiled_module_runs_eagerly(model: nn.Sequential, jit: Callable[..., Any]) -> None:
    expected = in_steps(model, model)
    replicated = replicate(jit(model))
    with pytest.warns(UncacheableWarning, match="calls a module that replicate was applied to"):
        assert all(map(torch.equal, in_steps(replicated, replicated), expected))


def test_the_older_wrapper_runs_eagerly_inside_and_works_around(model: nn.Sequential, jit: Callable[..., Any]) -> None:
    def wrapped(module: Any) -> Any:
        return FullyShardedDataParallel(
            module, sharding_strategy=ShardingStrategy.NO_SHARD, device_id=torch.device("cpu"), use_orig_params=True
        )

    value = x()
    expected = model(value)
    assert torch.equal(wrapped(jit(copy.deepcopy(model)))(value), expected)
    program = jit(wrapped(model))
    with pytest.warns(UncacheableWarning, match="calls a FullyShardedDataParallel"):
        assert all(torch.equal(program(value), expected) for _ in range(2))


def test_compiled_modules_inside_of_prepared_ones_train(
    prepare: Callable[[Any], Any], model: nn.Sequential, jit: Callable[..., Any]
) -> None:
    twin = copy.deepcopy(model)
    model[0] = jit(model[0])
    values = [x() for _ in range(3)]
    losses = []
    for trained in (prepare(model), prepare(twin)):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        losses.append([])
        for value in values:
            loss = trained(value).square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.detach())
    torch.testing.assert_close(*losses)
    assert thunder.cache_misses(model[0]) > 0


def test_parallelized_modules(mesh: DeviceMesh, model: nn.Sequential, jit: Callable[..., Any]) -> None:
    compiled, value = jit(model), x()
    expected = model(value)
    parallelize_module(compiled, mesh, {"0": ColwiseParallel()})
    for program in (compiled, jit(model)):
        torch.testing.assert_close(program(value), expected)
