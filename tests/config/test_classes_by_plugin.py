"""Several supports of wrapper subclasses: which one records a tensor."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import thunder
from tests.plugins.conftest import Site, site  # noqa: F401 - a fixture
from thunder_core.errors import PluginError, UnsupportedError
from thunder_frontend.record.tensor_classes import TensorClasses, WrapperCalls


class Derived(TwoTensor):
    pass


class Other(TwoTensor):
    pass


class Answers(TensorClasses):
    """Supports a class and those below it; each call returns a number and is noted."""

    def __init__(self, name: str, supported: type) -> None:
        self.name, self.supported = name, supported
        self.called: list[str] = []

    def supports_class(self, kind: type) -> type | None:
        return self.supported if issubclass(kind, self.supported) else None

    def start(self, recorder: Any, observer: Any) -> WrapperCalls:
        return _Answers(self)


class _Answers(WrapperCalls):
    def __init__(self, classes: Answers) -> None:
        self.classes = classes

    def call(self, func: Any, args: Any, kwargs: Any, wrappers: list[torch.Tensor]) -> Any:
        self.classes.called.append(f"{func.__name__} {type(wrappers[0]).__name__}")
        return 3

    def dispatch(self, func: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        raise AssertionError

    def in_checkpoint(self, region: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def rebuild(self, reconstructor: Any, wrapper: torch.Tensor) -> str:
        raise AssertionError

    def finish(self, outputs: list[Any]) -> None:
        self.classes.called.append("finish")


def double(x: Any) -> Any:
    return x * 2


def pair(kind: type = TwoTensor) -> Any:
    return kind(torch.ones(2), torch.full((2,), 2.0))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_support_for_the_most_derived_class_records_it(order: tuple[int, int]) -> None:
    both = Answers("general", TwoTensor), Answers("special", Derived)
    compiled = thunder.jit(double, tensor_classes=[both[index] for index in order])
    assert compiled(pair(Derived)) == 3
    assert compiled(pair()) == 3
    assert both[0].called == ["finish", "mul TwoTensor", "finish"]
    assert both[1].called == ["mul Derived", "finish", "finish"]


def test_support_of_the_plugin_for_classes_that_a_more_special_one_does_not_support() -> None:
    pytest.importorskip("thunder_plugin_subclasses")
    special = Answers("special", Derived)
    compiled = thunder.jit(double, tensor_classes=[special, "subclasses.wrappers"])
    result = compiled(pair())
    assert type(result) is TwoTensor
    assert torch.equal(result.b, torch.full((2,), 4.0))
    assert compiled(pair(Derived)) == 3
    assert special.called == ["finish", "mul Derived", "finish"]


def test_a_class_that_none_supports_is_refused() -> None:
    compiled = thunder.jit(double, tensor_classes=[Answers("special", Derived)])
    with pytest.raises(UnsupportedError, match=r"an argument of mul is of the class .*TwoTensor"):
        compiled(pair())


def test_a_call_with_classes_of_different_supports() -> None:
    classes = [Answers("derived", Derived), Answers("other", Other)]
    compiled = thunder.jit(lambda x, y: torch.add(x, y), tensor_classes=classes)
    with pytest.raises(UnsupportedError, match=r"Derived and .*Other, which different plugins record"):
        compiled(pair(Derived), pair(Other))


PLUGIN = """
import torch
from tests.config.test_classes_by_plugin import Answers, Derived
from thunder_core.plugins import TensorClassesSpec, hookimpl

@hookimpl
def thunder_tensor_classes():
    return [TensorClassesSpec("{name}", load="{module}:make")]

def make(options):
    return Answers("{name}", Derived)
"""


def test_two_plugins_for_one_class_are_an_error_that_names_both_distributions(site: Site) -> None:  # noqa: F811
    for name in ("alpha", "beta"):
        site.plugin(name, PLUGIN.replace("{name}", name))
    compiled = thunder.jit(double, tensor_classes=["alpha", "beta"])
    with pytest.raises(PluginError, match=r"tensors of the class .*\.Derived are supported by 'alpha'") as raised:
        compiled(pair(Derived))
    assert all(f"plugin-{name}" in str(raised.value) for name in ("alpha", "beta"))
    assert "name one of them in the list tensor_classes" in str(raised.value)
    assert thunder.jit(double, tensor_classes=["alpha"])(pair(Derived)) == 3
