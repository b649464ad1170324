"""Lightning Fabric around compiled modules, and compiled modules that it set up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import thunder

lightning_fabric = pytest.importorskip("lightning_fabric", reason="Lightning Fabric is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def _sharded(module: Any, mesh: Any) -> Any:
    return fully_shard(module, mesh=mesh["data_parallel"])


STRATEGIES: dict[str, Callable[[], Any]] = {
    "auto": lambda: "auto",
    "ddp": lambda: lightning_fabric.strategies.DDPStrategy(process_group_backend="gloo"),
    "model_parallel": lambda: lightning_fabric.strategies.ModelParallelStrategy(
        parallelize_fn=_sharded, process_group_backend="gloo"
    ),
}


@pytest.fixture
def fabric(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = lightning_fabric.Fabric(accelerator="cpu", devices=1, strategy=STRATEGIES[request.param]())
    made.launch()
    yield made
    if dist.is_initialized():
        dist.destroy_process_group()


def _module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def _trained(fabric: Any, module: Any, *, inside: bool) -> list[float]:
    """Losses of three steps; ``inside``: what Fabric sets up is compiled."""
    module = fabric.setup_module(module)
    optimizer = fabric.setup_optimizers(torch.optim.SGD(module.parameters(), lr=0.1))
    called = thunder.jit(module) if inside else module
    losses = []
    for step in range(3):
        loss = called(torch.ones(2, 4) * (step + 1)).square().mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    if inside:
        assert thunder.cache_misses(called) == 1
        assert not thunder.explain(called).fallbacks
    return losses


@pytest.mark.parametrize("fabric", STRATEGIES, indirect=True)
def test_what_fabric_sets_up_compiles(fabric: Any) -> None:
    assert _trained(fabric, _module(), inside=True) == _trained(fabric, _module(), inside=False)


@pytest.mark.parametrize("fabric", STRATEGIES, indirect=True)
def test_fabric_sets_up_compiled_modules(fabric: Any) -> None:
    assert _trained(fabric, thunder.jit(_module()), inside=False) == _trained(fabric, _module(), inside=False)
