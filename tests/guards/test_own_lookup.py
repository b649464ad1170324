"""Objects whose class answers ``object.name`` or ``dictionary[key]`` in its own way."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, ClassVar

import torch

import thunder


class Mapped:
    attribute_map: ClassVar[dict[str, str]] = {"experts": "local_experts"}

    def __init__(self) -> None:
        self.__dict__["experts"] = 128  # never read: the map leads elsewhere
        self.local_experts = 4

    def __getattribute__(self, name: str) -> Any:
        if name != "attribute_map" and name in super().__getattribute__("attribute_map"):
            name = super().__getattribute__("attribute_map")[name]
        return super().__getattribute__(name)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Mapped()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.config.experts


class Instances(OrderedDict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()


ACTIVATIONS = Instances(gelu=torch.nn.GELU, relu=torch.nn.ReLU)


class Activated(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS["gelu"](x)


def test_a_mapped_attribute_is_guarded_as_it_is_read() -> None:
    module = Scaled()
    compiled = thunder.jit(module)
    x = torch.ones(2)
    assert torch.equal(compiled(x), x * 4)
    assert torch.equal(compiled(x), x * 4)
    assert thunder.cache_misses(compiled) == 1
    module.config.local_experts = 5
    assert torch.equal(compiled(x), x * 5)


def test_a_dictionary_that_makes_its_items() -> None:
    compiled = thunder.jit(Activated())
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(compiled(x), torch.nn.functional.gelu(x))
    assert thunder.cache_misses(compiled) == 1


class Drawing(torch.nn.Module):
    """Computes tensors when it is asked for attributes."""

    def __getattribute__(self, name: str) -> Any:
        if name == "noise":
            return torch.rand(2) * self.factor
        return super().__getattribute__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.noise + (2 if hasattr(self, "noise") else 3)


def test_attributes_that_are_computed_from_tensors() -> None:
    """Nobody but the program asks for them: there are as many random numbers as in eager."""
    module = Drawing()
    module.factor = 2.0
    compiled = thunder.jit(module)
    x = torch.ones(2)
    for factor in (2.0, 2.0, 3.0):
        module.factor = factor
        torch.manual_seed(0)
        expected = [module(x), torch.rand(2)]
        torch.manual_seed(0)
        assert torch.equal(torch.stack([compiled(x), torch.rand(2)]), torch.stack(expected))
    assert thunder.cache_misses(compiled) == 2
