"""Programs whose front end `thunder.jit` selects by their class."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

import thunder
from thunder_core.errors import OptionError, PluginError
from thunder_core.plugins import host
from thunder_core.plugins.discovery import discover

OFFERS = """
from thunder_core.checks.source import ArgumentSource
from thunder_core.plugins import FrontEndSpec, hookimpl
from thunder_core.recording import record_call

class Double:
    def __call__(self, x): return x * 2

class Quadruple(Double):
    def __call__(self, x): return x * 4

class Other: pass

def function_of(program): return program

class FrontEnd:
    def record(self, function, args, kwargs, request):
        return record_call(function, [(ArgumentSource(0), args[0])])

front_end = FrontEnd()

@hookimpl
def thunder_front_ends():
    return [FrontEndSpec("double", "{module}:front_end", programs=(({kind}, "{module}:function_of"),))]
"""


@pytest.fixture
def program(site):
    """A module with the classes of programs, whose plugin ``alpha`` records those of `Double`."""
    name = site.plugin("alpha", OFFERS.replace("{kind}", '"{module}.Double"'))
    return __import__(name)


def test_a_class_and_its_subclasses_have_the_front_end(program):
    for kind, factor in ((program.Double, 2.0), (program.Quadruple, 4.0)):
        compiled = thunder.jit(kind(), executors=[])
        assert compiled(torch.ones(2)).tolist() == [factor, factor]
        assert compiled.settings.front_end is program.front_end
        assert pickle.loads(pickle.dumps(compiled.settings)).front_end is program.front_end


def test_functions_have_that_of_the_configuration(program):
    def function(x):
        return x + 1

    assert thunder.jit(function, executors=[]).settings.front_end is not program.front_end
    assert thunder.jit(function, executors=[], front_end="alpha").settings.front_end is program.front_end


@pytest.mark.parametrize("name", ["run", "alpha", "double", "alpha.double"])
def test_the_configuration_may_name_it(program, name):
    assert thunder.jit(program.Double(), executors=[], front_end=name).settings.front_end is program.front_end


def test_other_objects_have_no_front_end(program):
    with pytest.raises(OptionError, match=r"takes a function or an nn\.Module, not an object of type Other"):
        thunder.jit(program.Other())
    with pytest.raises(OptionError, match=r"thunder\.load\('model\.pt'\) reads a file"):
        thunder.jit("model.pt")
    with pytest.raises(OptionError, match=r"model\.load_state_dict\(\.\.\.\)"):
        thunder.jit(torch.nn.Linear(2, 2).state_dict())


def test_two_plugins_with_front_ends_for_one_class(site, program):
    site.plugin("beta", OFFERS.replace("{kind}", repr(f"{program.__name__}.Double")))
    with pytest.raises(PluginError, match=r"has front ends of .*alpha.* and .*beta") as raised:
        thunder.jit(program.Double())
    assert "THUNDER_PLUGINS" in str(raised.value)


def test_an_exported_program_without_the_plugin_names_what_to_install(site, monkeypatch):
    monkeypatch.setattr(host, "discover", lambda: [found for found in discover() if found.name != "export"])
    exported = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(PluginError, match="the plugin 'export' is not installed") as raised:
        thunder.jit(exported)
    assert f"pip install {Path(__file__).resolve().parents[2] / 'plugins' / 'export'}" in str(raised.value)
