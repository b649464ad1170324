"""`torch.distributed.checkpoint` of compiled modules: files of plain PyTorch, read and written both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import thunder
from thunder_testing.processes import group_of_one

WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "fully_shard": fully_shard,
    "DistributedDataParallel": DistributedDataParallel,
    "none": lambda module: module,
}


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    with group_of_one():
        yield


def _built(wrapper: str, *, compiled: bool) -> tuple[Any, torch.optim.Optimizer]:
    torch.manual_seed(0)
    module = WRAPPERS[wrapper](nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    module = thunder.jit(module) if compiled else module
    return module, torch.optim.AdamW(module.parameters(), lr=0.1)


def _step(module: Any, optimizer: torch.optim.Optimizer) -> None:
    module(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def _parameters(module: Any) -> list[torch.Tensor]:
    tensors = [getattr(one, "full_tensor", lambda one=one: one)() for one in module.parameters()]
    return [tensor.detach().clone() for tensor in tensors]


@pytest.mark.parametrize("read", ["eager", "compiled"])
@pytest.mark.parametrize("written", ["eager", "compiled"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.slow
def test_training_goes_on_from_a_checkpoint(wrapper: str, written: str, read: str, tmp_path: Path) -> None:
    module, optimizer = _built(wrapper, compiled=written == "compiled")
    _step(module, optimizer)
    model, state = get_state_dict(module, optimizer)
    names = list(model)
    dcp.save({"model": model, "optimizer": state}, checkpoint_id=tmp_path)
    _step(module, optimizer)

    other, another = _built(wrapper, compiled=read == "compiled")
    for _ in range(2):
        _step(other, another)
    model, state = get_state_dict(other, another)
    assert names == list(model) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    found = {"model": model, "optimizer": state}
    dcp.load(found, checkpoint_id=tmp_path)
    set_state_dict(other, another, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    _step(other, another)
    for one, expected in zip(_parameters(other), _parameters(module), strict=True):
        torch.testing.assert_close(one, expected, rtol=0, atol=0)
