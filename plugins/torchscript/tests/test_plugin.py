"""The package as a plugin."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.config import settings_of
from thunder_core.errors import UnsupportedError
from thunder_core.plugins.distributions import Installed
from thunder_core.plugins.host import reset_host
from thunder_frontend.record import interceptions
from thunder_frontend.record.interception import Interception
from thunder_plugin_torchscript.interceptions import INTERCEPTIONS
from thunder_testing import package_suite

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.:FutureWarning"),
]

test_package = package_suite(__file__)


def scripted(function: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(function)


def test_it_is_used_where_it_is_installed() -> None:
    assert {"torchscript": {"optional": True}} in [entry.plain() for entry in settings_of().config.interceptions]
    assert settings_of().advice == ()
    assert [row for row in INTERCEPTIONS if row not in interceptions._added] == []


@pytest.mark.parametrize("row", INTERCEPTIONS, ids=lambda row: f"{row.owner.__name__}.{row.name}")
def test_each_takes_the_place_of_a_refusal(row: Interception) -> None:
    (own,) = [one for one in interceptions.TABLE if (one.owner, one.name) == (row.owner, row.name)]
    assert isinstance(own, Interception)
    assert own.refuses


def _calls_function(script: Any, module: Any, x: torch.Tensor) -> Any:
    return script(x)


def _calls_module(script: Any, module: Any, x: torch.Tensor) -> Any:
    return module(x)


def _assigns(script: Any, module: Any, x: torch.Tensor) -> Any:
    module.note = 3
    return x


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (_calls_function, "the program calls a function in TorchScript"),
        (_calls_module, "the program calls a method of a module in TorchScript"),
        (_assigns, "the program assigns to an attribute of a module in TorchScript"),
    ],
)
def test_core_alone_refuses_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, program: Any, problem: str
) -> None:
    with_plugins = Installed.with_plugins
    monkeypatch.setattr(
        Installed,
        "with_plugins",
        lambda self: [one for one in with_plugins(self) if one.name != "thunder-plugin-torchscript"],
    )
    monkeypatch.setattr(interceptions, "_added", [])
    monkeypatch.setattr(interceptions, "_functions_of_c", {})
    interceptions._note_functions_of_c(interceptions.TABLE)
    reset_host()
    script, module = scripted(nn.functional.relu), scripted(nn.Linear(2, 2))
    try:
        with pytest.raises(UnsupportedError, match=problem) as caught:
            thunder.jit(lambda x: program(script, module, x))(torch.ones(2))
    finally:
        reset_host()
    assert "test_plugin.py" in str(caught.value)
    assert "the plugin 'torchscript' of Thunder's repository is not installed: pip install" in str(caught.value)


def test_attribute_of_python_is_written() -> None:
    module = scripted(nn.Linear(2, 2))

    def program(x: torch.Tensor) -> Any:
        module.note = x * 2
        return module(x)

    x = torch.ones(2)
    torch.testing.assert_close(thunder.jit(program)(x), module(x))
    torch.testing.assert_close(module.note, x * 2)
