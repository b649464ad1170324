"""Programs that communicate are refused without the plugin, with the user's line and what to install."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn import functional
from torch.nn.parallel import DistributedDataParallel

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.plugins.distributions import Installed
from thunder_core.plugins.host import reset_host
from thunder_frontend.record import communication, interceptions, module_calls
from thunder_testing.processes import fake_process_group

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed.nn.functional:FutureWarning")

INSTALL = "the plugin 'distributed' of Thunder's repository is not installed: pip install"


@pytest.fixture(autouse=True)
def without_plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with_plugins = Installed.with_plugins
    monkeypatch.setattr(
        Installed,
        "with_plugins",
        lambda self: [one for one in with_plugins(self) if one.name != "thunder-plugin-distributed"],
    )
    monkeypatch.setattr(interceptions, "_added", [])
    monkeypatch.setattr(interceptions, "_functions_of_c", {})
    interceptions._note_functions_of_c(interceptions.TABLE)
    monkeypatch.setattr(module_calls, "_taken_over", set())
    monkeypatch.setattr(communication, "_added", [])
    reset_host()
    with fake_process_group():
        yield
    reset_host()


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    dist.all_reduce(y)
    return y


def asynchronous(x: torch.Tensor) -> Any:
    return dist.all_reduce(x, async_op=True).wait()


def functional_reduction(x: torch.Tensor) -> torch.Tensor:
    return functional_collectives.all_reduce(x, "sum", dist.group.WORLD)


def differentiable_reduction(x: torch.Tensor) -> torch.Tensor:
    return functional.all_reduce(x * 2)


def objects(x: torch.Tensor) -> torch.Tensor:
    dist.all_gather_object([None, None], 3)
    return x


def barrier(x: torch.Tensor) -> torch.Tensor:
    dist.barrier()
    return x


def normalization(x: torch.Tensor) -> torch.Tensor:
    one = torch.ones(3)
    function: Any = torch.nn.modules._functions.SyncBatchNorm
    return function.apply(x.view(1, 3, 1), one, one, None, None, 1e-5, 0.1, dist.group.WORLD, 2)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (in_place, "c10d.allreduce_"),
        (asynchronous, "c10d.allreduce_"),
        (functional_reduction, "torch.ops._c10d_functional.all_reduce"),
        (differentiable_reduction, "_AllReduce.apply"),
        (objects, "all_gather_object"),
        (barrier, "c10d.barrier"),
        (normalization, "SyncBatchNorm"),
    ],
)
@pytest.mark.parametrize("gradient", [False, True])
def test_collectives_are_refused(program: Callable[..., Any], name: str, gradient: bool) -> None:
    with pytest.raises(UnsupportedError, match="communicates with other processes") as caught:
        thunder.jit(program)(torch.ones(3, requires_grad=gradient))
    assert name in caught.value.problem
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__
    assert INSTALL in str(caught.value)


@pytest.mark.parametrize("wrap", [fully_shard, DistributedDataParallel])
def test_wrappers_are_refused(wrap: Callable[[nn.Module], nn.Module]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        thunder.jit(wrap(nn.Linear(3, 2)))(torch.ones(1, 3))
    assert INSTALL in str(caught.value)
