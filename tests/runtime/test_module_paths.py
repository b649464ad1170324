"""Locations of ops and errors name the submodule by its path, as `named_modules` does."""

import traceback
from typing import Any

import pytest
import torch
from torch import nn

import thunder


class Block(nn.Module):
    def __init__(self, inner: int = 16) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(inner, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


class Net(nn.Module):
    def __init__(self, inner: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block(inner)])
        self.head = nn.ModuleDict({"first": nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 2))})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head["first"](x)


NAMES = (
    "layers.0.up layers.0 layers.0.down layers.0 layers.1.up layers.1 layers.1.down layers.1 head.first.0 head.first.1"
)


def modules(compiled: Any) -> list[str]:
    return [op.location.module for op in thunder.last_traces(compiled)[0].symbols]


@pytest.mark.slow
def test_names_are_those_of_named_modules() -> None:
    model = thunder.jit(Net())
    for _ in range(2):  # with constant sizes, and with others
        model(torch.randn(2 + len(thunder.explain(model).entries), 8)).sum().backward()
        assert modules(model) == NAMES.split()
        assert set(NAMES.split()) <= set(dict(model.named_modules()))
    assert "in Block.forward (layers.1.down): return x + self.down" in str(thunder.last_backward_traces(model)[-1])
    assert "(head.first.1)" in str(thunder.explain(model).decisions)


def test_names_in_functions_begin_with_the_variable() -> None:
    net = Net()
    compiled = thunder.jit(lambda x: net(x) + nn.ReLU()(x).sum())
    compiled(torch.randn(2, 8))
    assert modules(compiled)[:10] == [f"net.{name}" for name in NAMES.split()]
    assert modules(compiled)[10:] == ["ReLU", "", ""]


def test_an_error_of_shapes_names_the_layer() -> None:
    model = thunder.jit(Net(inner=17))
    with pytest.raises(RuntimeError) as raised:
        model(torch.randn(2, 8))
    with pytest.raises(RuntimeError) as expected:
        thunder.original(model)(torch.randn(2, 8))
    assert str(raised.value) == str(expected.value)
    layer = "In the module layers.1.down: Linear(in_features=17, out_features=8, bias=True)"
    note = f"{layer}, called with torch.float32 (2, 16)"
    assert "".join(traceback.format_exception(raised.value)).count(note) == 1


def test_an_error_of_the_program_has_no_note() -> None:
    class Raising(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad") as raised:
        thunder.jit(nn.Sequential(Raising()))(torch.ones(2))
    assert not hasattr(raised.value, "__notes__")


def test_an_error_of_thunder_names_the_layer() -> None:
    class Reading(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.empty(0).set_(x.untyped_storage())

    with pytest.raises(thunder.ThunderError, match=r"\(1\)"):
        thunder.jit(nn.Sequential(nn.ReLU(), Reading()))(torch.ones(2))


def test_the_name_ends_where_a_program_is_left() -> None:
    model = thunder.jit(Net(inner=17))
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 8))
    compiled = thunder.jit(torch.sin)
    compiled(torch.ones(2))
    assert modules(compiled) == [""]
