"""The signature of `thunder.jit` has each option of a configuration, with its type."""

import inspect
import pydoc
import re
import typing
from typing import Any, Literal, get_args

import pytest
import torch

import thunder
from thunder._api import Options
from thunder.config import ThunderConfig
from thunder.config.model import Policy
from thunder_core.settings import AllowRecompiles, CacheMode, SharpEdges

KEYWORDS = [each for each in inspect.signature(thunder.jit).parameters.values() if each.kind is each.KEYWORD_ONLY]


def test_signature_has_each_option() -> None:
    options = [*(name for name in ThunderConfig.model_fields if name != "extends"), "config"]
    assert sorted(each.name for each in KEYWORDS) == sorted(options) == sorted(Options.__annotations__)
    assert all(f" {name}: " in str(thunder.jit.__doc__) for name in options)


def test_types_are_those_of_the_settings() -> None:
    hints = typing.get_type_hints(thunder.jit)
    types = typing.get_type_hints(Options)
    assert {name: hints[name] for name in types} == types
    literals: dict[str, Any] = {"cache": CacheMode, "sharp_edges": SharpEdges, "allow_recompiles": AllowRecompiles}
    assert {name: set(get_args(hints[name])) for name in literals} == {
        name: set(get_args(literals[name])) for name in literals
    }
    assert Literal["none", "cheap", "aggressive"] in get_args(hints["recompute"])
    assert get_args(Policy) == ("none", "cheap", "aggressive")


@pytest.mark.parametrize(
    "name", ["cache", "recompute", "sharp_edges", "recompile_warning", "recompile_limit", "outcome_limit", "front_end"]
)
def test_the_docstring_has_the_default(name: str) -> None:
    (described,) = re.findall(rf"^    {name}: (.*?)(?=^    \w|^$)", inspect.getdoc(thunder.jit) or "", re.M | re.S)
    default = ThunderConfig.model_fields[name].default
    assert (f'"{default}"' if isinstance(default, str) else f"; {default} by") in described


@pytest.mark.parametrize("options", [{"cache": "no caching"}, {"recompute": {"budget": 0.5}}, {"recompile_limit": 3}])
def test_given_options_override_a_configuration_and_others_do_not(options: dict[str, Any]) -> None:
    config = {"cache": "same input", "recompute": "none", "recompile_limit": 2}
    reported = thunder.explain(thunder.jit(torch.relu, config=config, **options)).options
    assert {name: reported[name] for name in config} == config | options


def test_help_prints_the_options() -> None:
    text = pydoc.plain(pydoc.render_doc(thunder.jit))
    assert re.search("recompile_limit: ('int'|int) = <configured>", text)  # without quotes since Python 3.14
    assert "object at 0x" not in text
