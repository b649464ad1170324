"""The package as a plugin."""

from __future__ import annotations

import pytest
import torch

import thunder
import thunder_plugin_layouts
from thunder_plugin_layouts import plugin
from thunder_testing import package_suite
from thunder_testing.pointwise import Pointwise

NAMES = [spec.name for spec in plugin.thunder_transforms()]
BEFORE_DIFFERENTIATION = [name for name in NAMES if name != "direct_views"]

test_package = package_suite(__file__)


def stages(compiled: object) -> list[str]:
    return [stage.name for stage in thunder.explain(compiled).entries[0].stages]


def test_they_run_by_default_before_constants_are_folded_where_an_executor_fuses() -> None:
    compiled = thunder.jit(torch.cos, executors=[Pointwise()])
    compiled(torch.ones(2))
    found = stages(compiled)
    start = found.index(NAMES[0])
    assert found[start : start + 5] == [*BEFORE_DIFFERENTIATION, "constant_folding"]
    assert found.index("direct_views") > found.index("AssignExecutors")
    alone = thunder.jit(torch.cos, executors=[])
    alone(torch.ones(2))
    assert not set(NAMES) & set(stages(alone))


@pytest.mark.parametrize("prefix", ["", "layouts."])
@pytest.mark.parametrize("name", NAMES)
def test_each_has_a_switch(name: str, prefix: str) -> None:
    compiled = thunder.jit(torch.cos, executors=[Pointwise()], transforms=[{prefix + name: {"enabled": False}}])
    compiled(torch.ones(2))
    assert set(NAMES) - set(stages(compiled)) == {name}


def test_one_that_is_made_in_python_takes_the_place_of_the_default() -> None:
    own = thunder_plugin_layouts.SeparateBias()
    compiled = thunder.jit(torch.cos, executors=[Pointwise()], transforms=[own])
    compiled(torch.ones(2))
    assert [name for name in stages(compiled) if name in BEFORE_DIFFERENTIATION] == BEFORE_DIFFERENTIATION


def test_the_preset_reference_runs_none_of_them() -> None:
    compiled = thunder.jit(torch.cos, config="reference", executors=[Pointwise()])
    compiled(torch.ones(2))
    assert not set(NAMES) & set(stages(compiled))
