"""What runs in eager PyTorch; in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

import thunder
from thunder_core.errors import UncacheableWarning


@pytest.fixture(autouse=True)
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))


def several_modules() -> Any:
    model = network()
    fully_shard([model[0], model[2]])
    return fully_shard(model)


def with_hook() -> Any:
    model = fully_shard(network())
    model.set_all_reduce_hook(lambda gradient: None)
    return model


def custom_collective() -> Any:
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather

    class Gather(DefaultAllGather):
        pass

    model = fully_shard(network())
    model.set_custom_all_gather(Gather())
    return model


def wrapped_twice() -> Any:
    return fully_shard(nn.parallel.DistributedDataParallel(network()))


def _steps(model: Any, program: Callable[[torch.Tensor], Any]) -> list[torch.Tensor]:
    """Three steps of a model by a program that calls it, or by the model itself if the program returns None."""
    found = []
    for scale in range(1, 4):
        x = torch.full((2, 4), float(scale))
        result = program(x)
        result = model(x) if result is None else result
        result.sum().backward()
        found.append(result.detach())
    return [*found, *[parameter.grad.full_tensor() for parameter in model.parameters()]]


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (wrapped_twice, "DistributedDataParallel inside of fully_shard"),
        pytest.param(
            several_modules,
            "fully_shard of a list of modules",
            marks=pytest.mark.skipif(hasattr(FSDPState, "_cast_output_dtype"), reason="compiled since PyTorch 2.13"),
        ),
        (with_hook, "set_all_reduce_hook"),
        (custom_collective, "an all-gather that is not PyTorch's default"),
    ],
)
def test_a_configuration_that_is_not_compiled(build: Callable[[], Any], match: str) -> None:
    model = build()
    program = thunder.jit(lambda x: model(x), executors=[])
    expected = _steps(build(), lambda x: None)
    with pytest.warns(UncacheableWarning, match=rf"{match}.* is not compiled \(.*\), at .*:\d+ in "):
        actual = _steps(model, program)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.skipif(not hasattr(FSDPState, "_cast_output_dtype"), reason="eager before PyTorch 2.13")
def test_an_exception_in_a_list_of_modules_leaves_them_as_they_were() -> None:
    model = several_modules()
    model[1].forward = lambda x: 1 / 0
    parameters = list(model.parameters())
    with pytest.raises(ZeroDivisionError):
        thunder.jit(model, executors=[])(torch.ones(2, 4))
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    del model[1].forward
    assert thunder.jit(model, executors=[])(torch.ones(2, 4)).shape == (2, 4)
    assert model(torch.ones(2, 4)).shape == (2, 4)


@pytest.mark.skipif(not hasattr(FSDPState, "_cast_output_dtype"), reason="eager before PyTorch 2.13")
def test_a_write_to_a_parameter_of_a_list_of_modules_is_lost_as_in_eager() -> None:
    class Clamped(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.clamp_(-0.1, 0.1)
            return super().forward(x)

    def build() -> Any:
        torch.manual_seed(3)
        model: Any = nn.Sequential(Clamped(4, 4), nn.GELU(), nn.Linear(4, 4))
        fully_shard([model[0], model[2]])
        return fully_shard(model)

    model, expected = build(), _steps(build(), lambda x: None)
    with pytest.warns(UncacheableWarning, match="a forward that writes to a parameter of fully_shard is not compiled"):
        actual = _steps(model, thunder.jit(model, executors=[]))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_an_exception_in_forward_leaves_the_module_as_it_was() -> None:
    class Raises(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 3:
                raise ValueError("three rows")
            return super().forward(x)

    model = fully_shard(Raises(4, 4))
    compiled = thunder.jit(model, executors=[])
    with pytest.raises(ValueError, match="three rows"):
        compiled(torch.ones(3, 4))
    assert all(type(parameter).__name__ in ("DTensor", "Parameter") for parameter in model.parameters())
    compiled(torch.ones(2, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
