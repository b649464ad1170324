"""Programs of models on the meta device, compiled before the weights and the arguments exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import thunder
from thunder_core.errors import DataDependentError, OptionError, UnsupportedError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.recurrent = nn.LSTM(6, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = torch.full((11,), 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.recurrent(self.embedding(x))
        hidden = self.norm(hidden.mean(1))
        if x.device.type == "meta":
            raise AssertionError("the program is for another device")
        return self.head(hidden) * self.scale + torch.arange(11, device=x.device)


def on_meta() -> Net:
    with torch.device("meta"):
        return Net()


def given_weights(model: Any, source: Net) -> None:
    """Give the model the values of ``source``."""
    thunder.materialize(model, source.state_dict(), device="cpu", initialize=lambda net: net.scale.fill_(2.0))


SPECIFICATIONS: dict[str, Callable[[], torch.Tensor]] = {
    "meta": lambda: torch.empty(4, 3, dtype=torch.long, device="meta"),
    "fake": lambda: FakeTensorMode().from_tensor(torch.zeros(4, 3, dtype=torch.long)),
    "real": lambda: torch.zeros(4, 3, dtype=torch.long),
}


@pytest.mark.parametrize("kind", SPECIFICATIONS)
def test_a_model_with_weights_is_not_compiled_again(kind: str) -> None:
    expected = Net()
    model = thunder.jit(on_meta(), executors=None if kind == "meta" else [])
    assert thunder.precompile(model, (SPECIFICATIONS[kind](),), device="cpu") is model
    assert all(each.is_meta for each in model.state_dict().values())
    x = torch.randint(11, (4, 3))
    assert "device meta instead of cpu" in model.covers(x).reason
    given_weights(model, expected)
    for _ in range(2):
        result, reference = model(x), expected(x)
        torch.testing.assert_close(result, reference)
        result.square().sum().backward()
        reference.square().sum().backward()
    assert thunder.cache_misses(model) == 1
    torch.testing.assert_close(model.embedding.weight.grad, expected.embedding.weight.grad)
    torch.testing.assert_close(model.norm.running_var, expected.norm.running_var)


def test_several_calls_and_modes() -> None:
    model = thunder.jit(on_meta().eval(), dynamic=False, executors=[])
    with torch.no_grad():
        thunder.precompile(model, [(torch.empty(n, 3, dtype=torch.long, device="meta"),) for n in (1, 4)], device="cpu")
    given_weights(model, Net())
    with torch.no_grad():
        assert [bool(model.covers(torch.zeros(n, 3, dtype=torch.long))) for n in (1, 2, 4)] == [True, False, True]
    assert not model.covers(torch.zeros(1, 3, dtype=torch.long))


@pytest.mark.slow
def test_other_weights_are_compiled_again() -> None:
    """Guards are those of a call with tensors on the device: another dtype or another device needs another program."""
    model = thunder.jit(on_meta().eval(), executors=[])
    thunder.precompile(model, (torch.empty(4, 3, dtype=torch.long, device="meta"),), device="cpu")
    thunder.materialize(
        model, Net().state_dict(), device="cpu", dtype=torch.double, initialize=lambda net: net.scale.fill_(2.0)
    )
    x = torch.randint(11, (4, 3))
    assert "dtype torch.float64 instead of torch.float32" in model.covers(x).reason
    assert model(x).dtype is torch.double
    assert thunder.cache_misses(model) == 2


LAYER = nn.Linear(3, 2, device="meta")


def test_modules_of_a_function() -> None:
    outer = nn.Linear(2, 2, device="meta")

    @thunder.jit
    def doubled(layer: nn.Module, x: torch.Tensor) -> Any:
        return outer(layer(x) + LAYER(x)) * 2

    layer = nn.Linear(3, 2, device="meta")
    thunder.precompile(doubled, (layer, torch.empty(2, 3, device="meta")), device="cpu")
    for module in (layer, outer, LAYER):
        thunder.materialize(module, device="cpu")
    x = torch.ones(2, 3)
    torch.testing.assert_close(doubled(layer, x), outer(layer(x) + LAYER(x)) * 2)
    assert thunder.cache_misses(doubled) == 1


def test_what_cannot_be_compiled_before_the_call() -> None:
    x = torch.empty(3, device="meta")
    with pytest.raises(OptionError, match=r"was not returned by thunder\.jit"):
        thunder.precompile(torch.relu, (x,), device="cpu")
    doubled = thunder.jit(lambda x: x * 2)
    for device in ("meta", *(() if torch.backends.cuda.is_built() else ("cuda",))):
        with pytest.raises(OptionError, match=f"cannot be compiled for {device} here"):
            thunder.precompile(doubled, (x,), device=device)
    with pytest.raises(OptionError, match="an example is"):
        thunder.precompile(doubled, 3, device="cpu")
    with pytest.raises(OptionError, match="share memory"):
        thunder.precompile(doubled, (x, x[1:]), device="cpu")
    outer = torch.ones(3, device="meta")
    with pytest.raises(UnsupportedError, match=r"uses outer, which is on the meta device"):
        thunder.precompile(thunder.jit(lambda: outer * 2), (), device="cpu")
    reads = thunder.jit(lambda x: x * 2 if x.sum() > 0 else x)
    with pytest.raises(DataDependentError, match="x has no data yet"):
        thunder.precompile(reads, (x,), device="cpu")
    assert thunder.cache_misses(doubled) == 0


def test_an_error_leaves_the_model_as_it_was() -> None:
    class Reads(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(self.weight.sum())

    module = Reads(3, 2, device="meta")
    with pytest.raises(DataDependentError, match="module_weight has no data yet"):
        thunder.precompile(thunder.jit(module), (torch.empty(2, 3, device="meta"),), device="cpu")
    assert module.weight.is_meta
    assert type(module.weight) is nn.Parameter
    thunder.materialize(module, device="cpu")
    assert module.weight.device.type == "cpu"
