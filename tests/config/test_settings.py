"""What is made of a configuration: executors, transforms, and what is left out."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import thunder
from thunder.compiled.module_forward import compiled_of
from thunder.config import ThunderConfig, check_config, resolve_config, settings_of
from thunder_core.errors import ConfigError, OptionError, PluginError, TransformError
from thunder_core.executors import Claim, Executor, OperatorExecutor
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.passes.transform import Place, Transform
from thunder_core.plugins import ExecutorOptions
from thunder_core.plugins.host import reset_host
from thunder_plugin_simplify import ConstantFolding


@dataclass(frozen=True)
class Marker(Transform):
    name: ClassVar[str] = "marker"
    place: ClassVar[Place] = Place.LAST
    value: int = 0


@dataclass(frozen=True)
class Listed(Transform):
    name: ClassVar[str] = "listed"
    place: ClassVar[Place] = Place.LAST
    values: list[int] = field(default_factory=list)


@dataclass
class NotFrozen(Transform):
    name: ClassVar[str] = "not_frozen"
    place: ClassVar[Place] = Place.LAST


class Nameless(Transform):
    pass


LAYOUTS = ("attention_layout", "copy_pinned_views", "separate_bias", "convolution_layout")
LATER_LAYOUTS = ("direct_views",)
DEFAULT = ("constant_masks", "recognize_composites", *LAYOUTS, "constant_folding")
COLLECTIVES = ("overlap_gradients", "merge_collectives", "schedule_collectives", "agreement")
MATMULS = ("pad_matmuls", "common_subexpression", "widen_products")
LAST = (
    *LATER_LAYOUTS,
    *MATMULS,
    "inline_backward",
    "overlap_gradients",
    "merge_collectives",
    "schedule_collectives",
    "agreement",
    "cudagraphs",
)
"""What runs without being listed, in order."""


def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


OWN = OperatorExecutor("own", (Claim(torch.sin, sine),))


def executor_names(settings: Any) -> list[str]:
    return [executor.name for executor in settings.executors]


def transform_names(settings: Any) -> list[str]:
    return [transform.name for transform in settings.transforms]


# --- executors


def test_executors_come_in_the_order_of_the_list() -> None:
    settings = settings_of(executors=["slow", OWN, {"nvfuser": {"size": 8}}, "kernels.fast", "reference"])
    assert executor_names(settings) == ["slow", "own", "nvfuser", "fast", "reference"]
    assert settings.executors[1] is OWN
    assert '"size":8' in settings.executors[2].options
    assert settings.left_out == ()


def test_an_executor_is_wrapped_where_the_common_options_say_something() -> None:
    assert type(settings_of(executors=["slow"]).executors[0]) is OperatorExecutor
    assert type(settings_of(executors=[{"slow": {"on_decline": "next"}}]).executors[0]) is OperatorExecutor
    (found,) = settings_of(
        executors=[{"slow": {"include": ["*sin"], "exclude": ["cos"], "on_decline": "warn"}}]
    ).executors
    assert isinstance(found, ConfiguredExecutor)
    assert (found.name, found.include, found.exclude, found.on_decline) == ("slow", ("*sin",), ("cos",), "warn")
    assert found.executor.name == "slow"


def test_options_may_be_given_as_their_model() -> None:
    given = settings_of(executors=[{"slow": ExecutorOptions(exclude=("*sin",))}])
    assert given == settings_of(executors=[{"slow": {"exclude": ["*sin"]}}])


def test_equal_options_share_one_executor() -> None:
    one, other = settings_of(executors=["nvfuser"]), settings_of(executors=[{"nvfuser": {"size": 4}}])
    assert one == other
    assert one.executors[0] is other.executors[0]
    assert settings_of(executors=[{"nvfuser": {"size": 8}}]) != one


@pytest.mark.parametrize(
    ("executors", "told"),
    [
        (["own", OWN], "there is no executor 'own'"),
        ([OWN, OWN], r"executors\[1\]: 'own' is listed twice, first as entry \[0\]"),
        ([OperatorExecutor("fast", ()), "fast"], r"executors\[1\]: 'fast' is listed twice, first as entry \[0\]"),
        ([OperatorExecutor("fast", ()), "kernels.fast"], "'kernels.fast' is listed twice, first as 'fast'"),
        ([Marker()], "must be the name of an executor"),
        ([lambda input: input], r"must be an executor, not the function <lambda>; an executor has claims"),
        ([OperatorExecutor], r"must be an instance of OperatorExecutor, not the class; write OperatorExecutor\(\)"),
        ([{"slow": {"exclude": object()}}], "the options of 'slow' must be text, numbers, true, false, lists"),
        ([{3: {}}], "a name must be text, not the number 3"),
        ({"slow"}, "must be a list, not {'slow'}"),
    ],
)
def test_entries_that_are_refused(executors: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        settings_of(executors=executors)


def test_transforms_made_in_python_must_be_hashable_and_have_a_name() -> None:
    with pytest.raises(ConfigError, match=r"'listed' cannot be compared with others .*tuples instead of lists"):
        settings_of(transforms=[Listed()])
    with pytest.raises(ConfigError, match=r"'not_frozen' cannot be .* declare it with @dataclass\(frozen=True\)"):
        settings_of(transforms=[NotFrozen()])
    with pytest.raises(ConfigError, match="must be a transform, not the function <lambda>; a transform is an instance"):
        settings_of(transforms=[lambda trace: trace])
    with pytest.raises(ConfigError, match="Nameless has no name; its attribute `name` must be text"):
        settings_of(transforms=[Nameless()])


# --- what cannot be used


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "kernels_absent"),
        ("defect", "could not be created: ZeroDivisionError: division by zero, in .*kernels_objects.py"),
        ("needs_device", "cannot be used: there is no such device"),
    ],
)
def test_what_cannot_be_made_is_an_error_unless_it_is_optional(name: str, reason: str) -> None:
    with pytest.raises(PluginError, match=reason):
        settings_of(executors=["fast", name])
    settings = settings_of(executors=["fast", {name: {"optional": True}}])
    assert executor_names(settings) == ["fast"]
    ((left_out, why),) = settings.left_out
    assert left_out == name
    assert reason.partition(":")[0] in why
    (problem,) = check_config({"executors": [name]})
    assert problem.place == "executors[0]"
    assert reason.partition(":")[0] in problem.text


def test_the_advice_of_a_plugin_is_kept() -> None:
    with pytest.raises(PluginError) as caught:
        settings_of(executors=["needs_device"])
    assert caught.value.advice == ("buy one", "`optional: true` leaves it out where it cannot be used")


@pytest.mark.parametrize("name", ["vendor", "broken", "nowhere", "kernels.nowhere"])
def test_optional_entries_of_plugins_that_are_not_usable_are_left_out(name: str) -> None:
    settings = settings_of(executors=[{name: {"optional": True, "anything": 1}}, "fast"], transforms=[])
    assert executor_names(settings) == ["fast"]
    assert [left_out for left_out, why in settings.left_out if why] == [name]
    assert settings.config.executors[0].options == {"optional": True, "anything": 1}


def test_options_of_optional_entries_are_checked_all_the_same() -> None:
    with pytest.raises(ConfigError, match=r"executors\[0\].defect.nothing: unknown option"):
        settings_of(executors=[{"defect": {"optional": True, "nothing": 1}}])


def test_defects_of_optional_entries_are_errors_where_the_environment_is_strict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(PluginError, match="division by zero"):
        settings_of(executors=[{"kernels.defect": {"optional": True}}])
    assert (
        settings_of(executors=[{"kernels.needs_device": {"optional": True}}]).left_out[0][0] == "kernels.needs_device"
    )


def test_what_a_factory_returns_is_checked() -> None:
    with pytest.raises(PluginError, match="is of the type NoneType; kernels_objects:nothing must return an Executor"):
        settings_of(executors=["nothing"])
    with pytest.raises(PluginError, match=r"'renamed' of the plugin 'kernels' .* has the name 'fast'"):
        settings_of(executors=["renamed"])


def test_defects_of_others_are_errors_as_well_once_an_optional_entry_has_to_be_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(ConfigError, match="installed plugins have defects:\n  plugin 'broken'"):
        settings_of(executors=[{"nowhere": {"optional": True}}])
    monkeypatch.setenv("THUNDER_PLUGINS", "-broken")
    reset_host()
    settings = settings_of(executors=[{"nowhere": {"optional": True}}, {"vendor": {"optional": True}}])
    assert [name for name, _ in settings.left_out] == ["nowhere", "vendor"]


# --- transforms


def test_the_transforms_of_the_core_and_of_the_preset_run_unless_they_are_disabled() -> None:
    assert transform_names(settings_of()) == [*DEFAULT, *LAST]
    disabled = settings_of(transforms=[{"simplify.constant_folding": {"enabled": False}}])
    assert transform_names(disabled) == [*DEFAULT[:-1], *LAST]
    changed = settings_of(transforms=[{"constant_folding": {"limit": 3}}])
    assert changed.transforms[DEFAULT.index("constant_folding")] == ConstantFolding(limit=3)
    replaced = settings_of(transforms=[ConstantFolding(limit=4), Marker(1)])
    assert replaced.transforms[DEFAULT.index("constant_folding")] == ConstantFolding(limit=4)
    assert transform_names(replaced) == [*DEFAULT, *LAST, "marker"]


def test_transforms_of_the_preset_are_left_out_where_their_plugin_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", "-layouts")
    reset_host()
    settings = settings_of()
    assert sorted(transform_names(settings)) == sorted({*DEFAULT, *LAST}.difference(LAYOUTS, LATER_LAYOUTS))
    assert [name for name, _ in settings.left_out] == [f"layouts.{name}" for name in (*LAYOUTS, *LATER_LAYOUTS)]
    compiled = thunder.jit(sine, executors=["fast"])
    (line,) = thunder.explain(compiled).left_out_lines()
    assert line.startswith(f"left out: {', '.join(name for name, _ in settings.left_out)}, because ")
    assert settings_of("reference").left_out == ()
    for name in ("attention_layout", "layouts.attention_layout"):
        with pytest.raises(ConfigError, match=r"THUNDER_PLUGINS=-layouts|layouts \(blocked\)"):
            settings_of(transforms=[name])


def test_transforms_are_put_in_order() -> None:
    assert transform_names(settings_of(transforms=["quantize", "first"]))[-2:] == ["first", "quantize"]
    with pytest.raises(TransformError, match="'lonely' conflicts with 'constant_folding'"):
        settings_of(transforms=["lonely"])
    assert "lonely" in transform_names(settings_of("reference", transforms=["lonely"]))


def test_a_disabled_transform_is_not_made() -> None:
    settings = settings_of(transforms=[{"lonely": {"enabled": False}}, {"quantize": {"bits": 4}}])
    assert transform_names(settings) == [*DEFAULT, *LAST, "quantize"]
    assert [entry.name for entry in settings.config.transforms][-2:] == ["lonely", "quantize"]


# --- options of jit


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"cach": "same input"}, "^cach: unknown option; did you mean 'cache'"),
        ({"confg": "c.yaml"}, "^confg: unknown option; did you mean 'config'"),
        ({"extends": "default"}, "^extends: unknown option"),
        ({"cache": "same inputs"}, "^cache='same inputs' is not accepted; did you mean 'same input'"),
        ({"cache": "symbolic values"}, '^cache="symbolic values" is not available yet: numbers are'),
        ({"recompute": "chep"}, "^recompute='chep' is not a recompute policy; did you mean 'cheap'"),
        ({"recompute": {"budget": "1"}}, "^recompute.budget: must be a number, not the text '1'; leave out the quotes"),
        ({"recompile_limit": True}, "^recompile_limit: must be an integer, not true"),
        ({"executors": "nvfuser"}, "^executors: must be a list, not the text 'nvfuser'"),
        ({"front_end": "absent"}, "^front_end: there is no front end 'absent'"),
        ({"requires": ["absent"]}, r"^requires\[0\]: absent is not installed; run: pip install 'absent'"),
        ({"cache": 1, "cach": 2}, "^cach: unknown option.*\ncache: the number 1 is not accepted"),
    ],
    ids=str,
)
def test_options_that_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        thunder.jit(torch.sin, **options)


def test_a_model_that_is_made_in_python_is_checked() -> None:
    with pytest.raises(ConfigError) as caught:
        ThunderConfig(cach=1, recompile_limit=0, executors=["fast", "fast"])
    assert str(caught.value).splitlines() == [
        "executors[1]: 'fast' is listed twice, first as entry [0]",
        "recompile_limit: must be at least 1, not 0",
        "cach: unknown option; did you mean 'cache'?",
    ]
    with pytest.raises(ConfigError, match="no executor 'fats'; did you mean 'fast'"):
        settings_of(ThunderConfig(executors=["fats"]))


# --- copies


@pytest.fixture
def full() -> Any:
    executors = ["nvfuser", {"slow": {"exclude": ["*sin"]}}, {"vendor": {"optional": True}}]
    transforms = [{"quantize": {"bits": 3}}, Marker(2), {"constant_folding": {"limit": 5}}]
    return settings_of(executors=executors, transforms=transforms, cache="same input", recompute={"budget": 0.5})


def test_settings_are_pickled_as_what_they_name(full: Any) -> None:
    twin = pickle.loads(pickle.dumps(full))
    assert twin == full
    assert hash(twin) == hash(full)
    assert twin.executors[0] is full.executors[0]  # found again, not made again
    assert b"Fuser" not in pickle.dumps(full)
    assert twin.left_out == full.left_out


def test_what_was_made_in_python_is_pickled_itself() -> None:
    settings = settings_of(executors=[Unpickled(3)], transforms=[Marker(4)])
    twin = pickle.loads(pickle.dumps(settings))
    assert twin == settings
    assert twin.executors[0] is not settings.executors[0]


@dataclass(frozen=True)
class Unpickled(Executor):
    value: int
    name: str = "unpickled"

    def claim(self, bound: Any) -> Any:
        raise NotImplementedError


def test_settings_are_restored_whatever_the_environment_asks_for(full: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pickle.dumps(full)
    Path("other.yaml").write_text("cache: no caching\ntransforms: [first]\n")
    monkeypatch.setenv("THUNDER_CONFIG", "other.yaml")
    assert pickle.loads(data) == full


def test_copies_are_the_settings_themselves(full: Any) -> None:
    assert copy.copy(full) is full
    assert copy.deepcopy(full) is full


def test_compiled_modules_keep_them(full: Any) -> None:
    compiled = thunder.jit(torch.nn.Linear(2, 2), config=full.config)
    for twin in (pickle.loads(pickle.dumps(compiled)), copy.deepcopy(compiled)):
        assert compiled_of(twin).settings == full


@pytest.mark.slow
def test_a_complete_configuration_resolves_to_itself(full: Any) -> None:
    assert resolve_config(full.config) == full.config
    assert settings_of(full.config) == full
    assert resolve_config(full.config, cache="no caching") != full.config
