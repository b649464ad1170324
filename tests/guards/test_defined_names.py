"""Names that a class begins to define after a program was recorded: methods, special methods, properties."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder


def _times(factor: int) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: torch.ones(2) * factor


def _made(kind: type, *bases: type) -> Any:
    """A class of the test's own, which it may change."""
    return type(kind.__name__, (kind, *bases), {"__module__": __name__})


def _check(program: Callable[..., Any], value: Any, kind: type, name: str) -> None:
    compiled = thunder.jit(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(value), program(value))
    setattr(kind, name, _times(7))
    for _ in range(2):
        torch.testing.assert_close(compiled(value), program(value))
    assert thunder.cache_misses(compiled) == 2
    delattr(kind, name)
    torch.testing.assert_close(compiled(value), program(value))


class Base(Tensor):
    pass


@pytest.mark.parametrize("name", ["sigmoid", "__add__", "tanh"])
def test_a_method_of_tensors_is_overridden_by_a_subclass(name: str) -> None:
    kind = _made(Base)
    _check(lambda x: (x + 1) * x.sigmoid(), torch.ones(2).as_subclass(kind), kind, name)


def test_a_method_of_tensors_is_overridden_by_a_class_of_the_program() -> None:
    kind = _made(Base)
    _check(lambda x: x.as_subclass(kind).sigmoid() * 2, torch.ones(2), kind, "sigmoid")


def test_a_method_of_tensors_is_overridden_by_a_class_between() -> None:
    between = _made(Base)
    kind = _made(between)
    _check(lambda x: x.sigmoid() * 2, torch.ones(2).as_subclass(kind), between, "sigmoid")


@pytest.mark.parametrize(("kind", "name"), [(list, "copy"), (dict, "__getitem__"), (collections.UserList, "copy")])
def test_a_method_of_containers_is_overridden_by_a_subclass(kind: type, name: str) -> None:
    class Derived(kind):
        pass

    def program(values: Any) -> Any:
        return (values.copy()[0], values[0])[len(values) > 1] + 1

    _check(program, Derived({0: torch.ones(2)} if kind is dict else [torch.ones(2)]), Derived, name)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return x + sum(parameter.sum() for parameter in self.parameters())


class Outer(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * 2


@pytest.mark.parametrize(("name", "method"), [("parameters", lambda self: [torch.ones(2)]), ("__call__", _times(7))])
def test_a_method_of_modules_is_overridden_by_a_subclass(name: str, method: Any) -> None:
    kind = _made(Layer)
    module, x = Outer(kind()), torch.ones(2)
    compiled = thunder.jit(module)
    before = compiled(x)
    torch.testing.assert_close(compiled(x), before)
    setattr(kind, name, method)
    assert not torch.equal(module(x), before)
    torch.testing.assert_close(compiled(x), module(x))


class Plain:
    def __init__(self) -> None:
        self.scale = 3.0


SPECIAL = {
    "__bool__": lambda self: False,
    "__len__": lambda self: 0,
    "__eq__": lambda self, other: True,
    "__getattr__": lambda self, name: 7.0,
    "scale": property(lambda self: 9.0, lambda self, value: None),
}


@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_an_object_of_a_class_that_begins_to_define_a_name(name: str) -> None:
    class Derived(Plain):
        pass

    def program(value: Plain, x: Tensor) -> Tensor:
        return x * (2 if value else 3) * (5 if value == 1 else 7) * value.scale * getattr(value, "other", 1.0)

    compiled, x, value = thunder.jit(program), torch.ones(2), Derived()
    before = program(value, x)
    for _ in range(2):
        torch.testing.assert_close(compiled(value, x), before)
    assert thunder.cache_misses(compiled) == 1
    setattr(Derived, name, SPECIAL[name])
    assert not torch.equal(program(value, x), before)
    torch.testing.assert_close(compiled(value, x), program(value, x))


def test_what_python_keeps_in_a_class_does_not_count() -> None:
    class Derived(Plain):
        pass

    compiled, value = thunder.jit(lambda value, x: x * value.scale), Derived()
    compiled(value, torch.ones(2))
    copy.copy(value)
    Derived.__annotations__ = {}
    assert "__slotnames__" in vars(Derived)
    compiled(value, torch.ones(2))
    assert thunder.cache_misses(compiled) == 1
