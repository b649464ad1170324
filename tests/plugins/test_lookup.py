"""Which plugin's item a name means."""

import sys

import pytest

from tests.plugins.conftest import Site
from thunder_core.errors import PluginError
from thunder_core.plugins.host import host
from thunder_core.plugins.lookup import find
from thunder_core.plugins.specs import CheckSpec, ExecutorSpec, FrontEndSpec, Preset, TransformSpec

SEVERAL = """
from thunder_core.plugins import *

@hookimpl
def thunder_executors():
    return [ExecutorSpec(name, "a:b") for name in {executors}]

@hookimpl
def thunder_transforms():
    return (TransformSpec(name, "a:b") for name in {transforms})

@hookimpl
def thunder_front_ends():
    return [FrontEndSpec("record_" + name, "a:b") for name in {transforms}]

@hookimpl
def thunder_presets():
    return [Preset("preset_" + name, "a", "b.yaml") for name in {transforms}]

@hookimpl
def thunder_doctor():
    return [CheckSpec("check of " + name, "a:b") for name in {transforms}]
"""


def _several(site: Site, name: str, executors: tuple[str, ...] = (), transforms: tuple[str, ...] = ()) -> str:
    return site.plugin(name, SEVERAL.format(executors=executors, transforms=transforms))


def _found(name: str) -> tuple[str, str]:
    offered = find(ExecutorSpec, name)
    return offered.plugin.name, offered.spec.name


def test_a_plugin_stands_for_its_only_item(site: Site) -> None:
    _several(site, "alpha", ("one",), ("two",))
    assert _found("alpha") == ("alpha", "one")
    assert find(TransformSpec, "alpha").spec.name == "two"
    assert find(FrontEndSpec, "alpha").spec.name == "record_two"
    assert find(Preset, "alpha").spec.name == "preset_two"


def test_a_plugin_stands_for_its_item_of_the_same_name(site: Site) -> None:
    _several(site, "alpha", ("one", "alpha"))
    assert _found("alpha") == ("alpha", "alpha")


def test_a_plugin_with_several_items_and_none_of_its_name(site: Site) -> None:
    _several(site, "alpha", ("one", "two"))
    with pytest.raises(PluginError, match="offers 2 executors, none of which is called 'alpha'") as raised:
        find(ExecutorSpec, "alpha")
    assert raised.value.advice == ("name one of them: alpha.one, alpha.two",)


def test_naming_a_plugin_imports_no_other(site: Site) -> None:
    _several(site, "alpha", ("one",))
    other = _several(site, "beta", ("two",))
    assert _found("alpha") == ("alpha", "one")
    assert _found("alpha.one") == ("alpha", "one")
    assert other not in sys.modules


def test_an_item_of_a_named_plugin(site: Site) -> None:
    _several(site, "alpha", ("one", "two"), ("three",))
    assert _found("alpha.two") == ("alpha", "two")
    with pytest.raises(PluginError, match=r"offers no executor 'onee'; did you mean 'one'\?") as raised:
        find(ExecutorSpec, "alpha.onee")
    assert raised.value.advice == (
        "it offers executors: one, two; transforms: three; front ends: record_three; presets: preset_three; "
        "checks: check of three",
    )


def test_an_item_of_any_plugin(site: Site) -> None:
    _several(site, "alpha", ("one",))
    _several(site, "beta", ("two", "three"))
    assert _found("three") == ("beta", "three")


def test_the_core_answers_for_its_names_first(site: Site) -> None:
    imported = [_several(site, "alpha", ("reference",)), _several(site, "reference", ("one",))]
    assert _found("reference") == ("core", "reference")
    assert not set(imported) & set(sys.modules)
    assert _found("alpha.reference") == ("alpha", "reference")


def test_two_plugins_with_an_item_of_one_name(site: Site) -> None:
    _several(site, "alpha", ("fast", "one"))
    _several(site, "beta", ("fast",))
    with pytest.raises(
        PluginError, match=r"the executor 'fast' is offered by plugin-alpha 1\.0 and plugin-beta 1\.0"
    ) as raised:
        find(ExecutorSpec, "fast")
    assert raised.value.advice == ("name one of them: alpha.fast or beta.fast",)
    assert _found("beta.fast") == ("beta", "fast")
    assert _found("one") == ("alpha", "one")


def test_a_plugin_without_items_of_the_kind_leaves_its_name_to_others(site: Site) -> None:
    _several(site, "alpha", (), ("one",))
    _several(site, "beta", ("alpha",))
    assert _found("alpha") == ("beta", "alpha")


def test_nobody_has_it(site: Site) -> None:
    _several(site, "alpha", ("fast", "one"))
    site.plugin("broken", "1 / 0")
    site.plugin("absent", requires=("no-such-library; extra == 'lib'",))
    with pytest.raises(PluginError, match=r"there is no executor 'fats'; did you mean 'fast'\?") as raised:
        find(ExecutorSpec, "fats")
    executors, silent = raised.value.advice
    assert executors.startswith("executors of installed plugins: ")
    assert {"fast", "one", "reference"} <= set(executors.partition(": ")[2].split(", "))
    for name in ("absent (library missing)", "broken (failed)"):
        assert name in silent
    assert silent.endswith("; `thunder plugins` shows the reasons")


def test_a_misspelt_plugin_that_offers_the_kind_is_suggested_too(site: Site) -> None:
    _several(site, "alpha", (), ("one",))
    _several(site, "alpaa", ("one",))
    with pytest.raises(PluginError, match=r"there is no transform 'alhpa'; did you mean 'alpha'\?"):
        find(TransformSpec, "alhpa")


def test_a_name_of_something_else(site: Site) -> None:
    _several(site, "alpha", ("fast", "one"))
    with pytest.raises(PluginError) as raised:
        find(TransformSpec, "alpha")
    assert "did you mean" not in str(raised.value)
    assert raised.value.advice[0] == "the plugin 'alpha' (plugin-alpha 1.0) offers executors: fast, one"
    with pytest.raises(PluginError) as raised:
        find(TransformSpec, "fast")
    assert raised.value.advice[0] == "'fast' is the name of something else: executor"


def test_a_plugin_of_the_name_that_cannot_be_used(site: Site) -> None:
    site.plugin("absent", requires=("no-such-library; extra == 'lib'",))
    with pytest.raises(PluginError, match=r"the plugin 'absent' .* it needs no-such-library"):
        find(ExecutorSpec, "absent")


def test_what_is_loaded_is_offered_in_order(site: Site) -> None:
    _several(site, "beta", ("three",), ("four",))
    _several(site, "alpha", ("two", "one"))
    assert host().offered(ExecutorSpec) == ()
    host().load("beta")
    host().load("alpha")
    host().load("core")
    mine = [offered for offered in host().offered(ExecutorSpec) if offered.plugin.name in ("alpha", "beta", "core")]
    assert [(offered.plugin.name, offered.spec.name) for offered in mine] == [
        ("core", "reference"),
        ("alpha", "two"),
        ("alpha", "one"),
        ("beta", "three"),
    ]
    assert "four" in {offered.spec.name for offered in host().offered(TransformSpec)}
    assert "record_four" in {offered.spec.name for offered in host().offered(FrontEndSpec)}
    assert "preset_four" in {offered.spec.name for offered in host().offered(Preset)}
    assert "check of four" in {offered.spec.name for offered in host().offered(CheckSpec)}
