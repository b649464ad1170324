"""``THUNDER_PLUGINS``: which plugins the environment lets in."""

import pytest

from tests.plugins.conftest import Site, record
from thunder_core.errors import PluginError
from thunder_core.plugins.host import host
from thunder_core.plugins.lookup import find
from thunder_core.plugins.specs import ExecutorSpec
from thunder_core.plugins.states import PluginState


@pytest.fixture(autouse=True)
def _three_plugins(site: Site) -> None:
    for name in ("alpha", "beta", "gamma"):
        site.plugin(name)


@pytest.mark.parametrize(
    ("value", "let_in"),
    [
        ("", {"alpha", "beta", "gamma"}),
        (" , ", {"alpha", "beta", "gamma"}),
        ("alpha", {"alpha"}),
        ("alpha, gamma", {"alpha", "gamma"}),
        ("-alpha", {"beta", "gamma"}),
        ("-alpha,- beta", {"gamma"}),
        ("alpha,beta,-beta", {"alpha"}),
        ("core", set()),
    ],
)
def test_values(monkeypatch: pytest.MonkeyPatch, value: str, let_in: set[str]) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", value)
    states = {name: record(name).state for name in ("alpha", "beta", "gamma")}
    assert {name for name, state in states.items() if state is PluginState.AVAILABLE} == let_in
    assert {state for name, state in states.items() if name not in let_in} <= {PluginState.BLOCKED}
    assert record("core").state is PluginState.AVAILABLE


def test_a_blocked_plugin_says_by_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", "-beta")
    with pytest.raises(PluginError, match=r"'beta' .* cannot be used: THUNDER_PLUGINS=-beta blocks it") as raised:
        find(ExecutorSpec, "beta")
    assert raised.value.advice == ("unset THUNDER_PLUGINS",)


def test_a_plugin_that_is_not_named_says_by_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", "alpha")
    with pytest.raises(PluginError, match="THUNDER_PLUGINS=alpha does not name it"):
        host().load("beta")


def test_blocked_plugins_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", "alpha")
    host().load_all()
    assert {offered.plugin.name for offered in host().offered(ExecutorSpec)} == {"core", "alpha"}


@pytest.mark.parametrize("value", ["alhpa", "-alhpa", "beta,alhpa"])
def test_an_unknown_name_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", value)
    with pytest.raises(PluginError, match=r"names 'alhpa', and no plugin of this name .*; did you mean 'alpha'\?"):
        _ = host().records
    with pytest.raises(PluginError, match="'alhpa'"):
        find(ExecutorSpec, "beta")


def test_the_core_cannot_be_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", "-core")
    with pytest.raises(PluginError, match="blocks 'core', without which nothing runs"):
        _ = host().records


def test_a_name_clash_can_be_blocked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.distribution("another", plugins={"alpha": "m"})
    monkeypatch.setenv("THUNDER_PLUGINS", "-alpha")
    assert {found.state for found in host().records if found.name == "alpha"} == {PluginState.BLOCKED}
