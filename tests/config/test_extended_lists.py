"""Lists that extend those of the configurations below: ``...`` represents the entries that they do not name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder.config import ThunderConfig, check_config, resolve_config, settings_of, to_yaml
from thunder_core.errors import ConfigError


def names(config: ThunderConfig, option: str = "executors") -> list[str]:
    return [entry.name for entry in getattr(config, option) or ()]


EXECUTORS: list[tuple[list[Any], list[Any], list[str]]] = [
    (["slow", "fast"], ["...", "nvfuser"], ["slow", "fast", "nvfuser"]),
    (["slow", "fast"], ["nvfuser", ...], ["nvfuser", "slow", "fast"]),
    (["slow", "fast"], ["nvfuser", ..., "reference"], ["nvfuser", "slow", "fast", "reference"]),
    (["slow", "fast"], ["...", "slow"], ["fast", "slow"]),
    (["kernels.slow", "fast"], ["slow", "..."], ["slow", "fast"]),
    (["slow", "fast"], ["..."], ["slow", "fast"]),
    (["slow", "fast"], ["fast", "slow", "..."], ["fast", "slow"]),
    ([], ["fast", "..."], ["fast"]),
    (["slow", "..."], ["fast", "..."], ["fast", "slow", "..."]),
    (["slow", "..."], ["...", "fast"], ["slow", "...", "fast"]),
]


@pytest.mark.parametrize(("below", "own", "expected"), EXECUTORS)
def test_executors(below: list[Any], own: list[Any], expected: list[str]) -> None:
    assert names(resolve_config({"executors": below}, executors=own)) == expected
    assert names(resolve_config(ThunderConfig(executors=below), executors=own)) == expected


def test_without_a_list_below_the_device_decides() -> None:
    config = {"executors": ["slow", "...", "reference"]}
    settings = settings_of(config)
    assert (settings.executors_by_device, [executor.name for executor in settings.executors]) == (
        True,
        ["slow", "reference"],
    )
    for device, expected in (("npu", ["slow", "fast", "reference"]), ("abacus", ["slow", "reference"])):
        assert [executor.name for executor in settings.for_device(device)[0].executors] == expected
    _, preset = settings.for_device("npu")
    assert preset is not None
    assert preset.lines()[0] == (
        "executors of the preset 'npu', chosen for the device npu, beside slow, reference: fast"
    )
    assert [executor.name for executor in settings_of(executors=["fast", ...]).for_device("npu")[0].executors] == [
        "fast"
    ]
    assert settings_of(executors=[...]).config.executors is None
    assert resolve_config({"executors": [...]}) == resolve_config()


def test_programs_are_compiled_with_them() -> None:
    compiled = thunder.jit(torch.relu, executors=["fast", ...])
    compiled(torch.ones(2))
    (entry,) = thunder.explain(compiled).entries
    assert entry.preset is not None
    assert "executors of the preset 'cpu', chosen for the device cpu, beside fast: none" in str(
        thunder.explain(compiled)
    )


def test_an_executor_that_is_named_keeps_none_of_the_options_below() -> None:
    config = resolve_config({"executors": [{"nvfuser": {"size": 8}}, "fast"]}, executors=["...", "nvfuser"])
    assert names(config) == ["fast", "nvfuser"]
    assert config.executors is not None
    assert config.executors[1].options["size"] == 4


def test_transforms_are_placed_and_keep_their_options() -> None:
    below = {"transforms": [{"quantize": {"bits": 4}}, "first"]}
    default = names(resolve_config(), "transforms")
    assert names(resolve_config(below), "transforms") == [*default, "quantize", "first"]
    placed = resolve_config(below, transforms=["first", "...", {"kernels.quantize": {"scheme": "log"}}])
    assert names(placed, "transforms") == ["first", *default, "kernels.quantize"]
    assert placed.transforms[-1].options == {"bits": 4, "enabled": True, "optional": False, "scheme": "log"}
    assert names(resolve_config(transforms=[..., "first"]), "transforms") == [*default, "first"]
    moved = resolve_config(transforms=[..., {"constant_folding": {"limit": 3}}])
    assert names(moved, "transforms") == [*default[1:], "constant_folding"]
    assert moved.transforms[-1].options["limit"] == 3


def test_other_lists() -> None:
    default = resolve_config()
    assert resolve_config(tensor_classes=[...]).tensor_classes == default.tensor_classes
    assert names(resolve_config(tensor_classes=["wrappers", ...]), "tensor_classes") == ["wrappers"]
    placed = resolve_config(interceptions=["distributed", "..."])
    assert sorted(names(placed, "interceptions")) == sorted(names(default, "interceptions"))
    assert names(placed, "interceptions")[0] == "distributed"


def test_files_and_what_they_extend() -> None:
    Path("base.yaml").write_text("executors: [slow, ...]\ntransforms:\n  - ...\n  - first\n")
    Path("mine.yaml").write_text("extends: base.yaml\nexecutors:\n  - fast\n  - ...\n")
    Path("mine.json").write_text('{"extends": "base.yaml", "executors": ["fast", "..."]}')
    config = resolve_config("mine.yaml")
    assert names(config) == ["fast", "slow", "..."]
    assert names(config, "transforms")[-1] == "first"
    assert resolve_config("mine.json") == config
    Path("complete.yaml").write_text(to_yaml(config))
    assert resolve_config("complete.yaml") == config
    settings = settings_of("mine.yaml")
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert hash(settings_of("mine.json")) == hash(settings)


def test_presets_extend_and_are_extended() -> None:
    assert names(resolve_config("fused_more", executors=[..., "slow"])) == ["nvfuser", "fast", "slow"]
    for name in ("nvfuser:fused_more", "nvfuser.fused_more"):
        assert resolve_config(name) == resolve_config("fused_more")
    assert resolve_config("thunder:reference") == resolve_config("reference")
    Path("mine.yaml").write_text("extends: thunder:reference\n")
    assert resolve_config("mine.yaml") == resolve_config("reference")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("executors: [fast, ..., slow, ...]", "executors[3]: '...' is listed twice, first as entry [1]"),
        ("executors:\n  - ...:\n      size: 3\n", "executors[0]: '...' has no options; write it alone"),
        ("executors: [.., fast]", "executors[0]: '..' is not a name; the entries of the extended list are '...'"),
        ("requires: [...]", "requires[0]: must be a requirement"),
        ("extends: thunder:absent", "extends: the plugin 'core'"),
        ("extends: absent:fast", "extends: there is no plugin 'absent'"),
    ],
)
def test_mistakes(config: str, problem: str) -> None:
    Path("c.yaml").write_text(config)
    (found,) = check_config("c.yaml")
    assert problem in str(found)
    with pytest.raises(ConfigError):
        thunder.jit(torch.relu, config="c.yaml")


def test_the_places_of_problems_are_those_of_the_list() -> None:
    Path("base.yaml").write_text("executors: [slow]\n")
    Path("c.yaml").write_text("extends: base.yaml\nexecutors:\n  - ...\n  - nvfuser:\n      sise: 3\n")
    (found,) = check_config("c.yaml")
    assert str(found) == "c.yaml:5: executors[1].nvfuser.sise: unknown option; did you mean 'size'?"
