"""The package as a plugin, and what the core does without it."""

from __future__ import annotations

import re
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from wrapper_classes import assert_same, numbers, pair

import thunder
import thunder_plugin_subclasses
from thunder_core.errors import ConfigError, UnsupportedError
from thunder_core.plugins.host import reset_host
from thunder_plugin_subclasses import plugin
from thunder_testing import package_suite

test_package = package_suite(__file__)


def test_the_specification_leads_to_the_support_of_its_name() -> None:
    (spec,) = plugin.thunder_tensor_classes()
    module, _, name = spec.load.partition(":")
    made = attrgetter(name)(import_module(module))(spec.options())
    assert isinstance(made, thunder_plugin_subclasses.Wrappers)
    assert made.name == spec.name


def _sum(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def _shape(x: torch.Tensor) -> int:
    return x.shape[0]


def _argument_itself(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize("config", [None, "reference", {"executors": []}], ids=str)
def test_it_is_used_without_being_named(config: Any) -> None:
    compiled = thunder.jit(_sum, config=config)
    x = pair(3)
    assert_same(compiled(x), _sum(x))


@pytest.mark.parametrize(
    "classes", [[thunder_plugin_subclasses.Wrappers()], ["wrappers"], ["subclasses"]], ids=["object", "item", "plugin"]
)
def test_it_can_be_named(classes: list[Any]) -> None:
    compiled = thunder.jit(_sum, tensor_classes=classes)
    x = pair(3)
    assert_same(compiled(x), _sum(x))


@pytest.mark.parametrize("function", [_sum, _shape], ids=lambda function: function.__name__)
def test_without_it_the_core_refuses_such_a_class_at_the_line(function: Any) -> None:
    compiled = thunder.jit(function, tensor_classes=[])
    with pytest.raises(
        UnsupportedError, match=r"is of the class .*TwoTensor, which has a __torch_dispatch__"
    ) as caught:
        compiled(pair(3))
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


def test_without_it_programs_of_other_tensors_are_compiled() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(torch.sin, x, use_reentrant=False)

    x = numbers(3).requires_grad_()
    compiled = thunder.jit(function, tensor_classes=[])
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_a_wrapper_that_the_program_only_hands_on_needs_no_support() -> None:
    x = pair(3)
    assert thunder.jit(_argument_itself, tensor_classes=[])(x) is x


def test_where_it_is_missing_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", "-subclasses")
    reset_host()
    try:
        compiled = thunder.jit(_sum)
        with pytest.raises(UnsupportedError) as caught:
            compiled(pair(3))
        assert any("unset THUNDER_PLUGINS" in advice for advice in caught.value.advice)
        with pytest.raises(ConfigError, match=re.escape("subclasses")):
            thunder.jit(_sum, tensor_classes=["subclasses.wrappers"])
    finally:
        monkeypatch.undo()
        reset_host()
