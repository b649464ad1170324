"""The package as a plugin."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest
import torch

import thunder
import thunder_plugin_simplify
from thunder_core.plugins import TransformSpec
from thunder_core.plugins.host import reset_host
from thunder_plugin_simplify import plugin
from thunder_testing import package_suite

NAMES = [spec.name for spec in plugin.thunder_transforms()]

test_package = package_suite(__file__)


@pytest.mark.parametrize("spec", plugin.thunder_transforms(), ids=lambda spec: spec.name)
def test_specifications(spec: TransformSpec) -> None:
    module, _, name = spec.load.partition(":")
    transform = attrgetter(name)(import_module(module))(spec.options())
    assert spec.name == transform.name
    assert transform == type(transform)()
    assert type(transform).__name__ in thunder_plugin_simplify.__all__


def test_what_the_package_exports() -> None:
    for name in thunder_plugin_simplify.__all__:
        assert getattr(thunder_plugin_simplify, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Simplify'"):
        _ = thunder_plugin_simplify.Simplify


def stages(**options: Any) -> set[str]:
    """The transforms of this package among the stages of a program, which is compared with eager."""
    x = torch.ones(3, requires_grad=True)
    compiled = thunder.jit(repetitive, executors=[], **options)
    compare(compiled, x)
    return set(NAMES) & {stage.name for stage in thunder.explain(compiled).entries[0].stages}


def repetitive(x: torch.Tensor) -> torch.Tensor:
    return x.exp() * torch.arange(3.0) + x.exp()


def compare(compiled: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    result, expected = compiled(x), repetitive(x)
    assert torch.equal(result, expected)
    assert torch.equal(*[torch.autograd.grad(one.sum(), x)[0] for one in (result, expected)])


@pytest.mark.parametrize("prefix", ["", "simplify."])
@pytest.mark.parametrize("name", NAMES)
def test_both_run_by_default_and_each_has_a_switch(name: str, prefix: str) -> None:
    assert stages() == set(NAMES)
    assert stages(transforms=[{prefix + name: {"enabled": False}}]) == set(NAMES) - {name}


def test_the_preset_reference_runs_none_of_them() -> None:
    assert stages(config="reference") == set()


def test_programs_run_where_the_package_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", "-simplify")
    reset_host()
    try:
        assert stages() == set()
    finally:
        monkeypatch.undo()
        reset_host()
