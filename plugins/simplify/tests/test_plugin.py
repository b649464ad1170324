"""The package as a plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_core.plugins.host import reset_host
from thunder_plugin_simplify import plugin
from thunder_testing import package_suite

NAMES = [spec.name for spec in plugin.thunder_transforms()]

test_package = package_suite(__file__)


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
