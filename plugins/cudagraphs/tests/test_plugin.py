"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

import pytest

import thunder_plugin_cudagraphs
from thunder_core.plugins import TransformOptions
from thunder_plugin_cudagraphs import CUDAGraphs, plugin
from thunder_plugin_cudagraphs.options import CUDAGraphsOptions
from thunder_testing import package_suite
from thunder_testing.package.suite import package_cases

test_package = package_suite(__file__)
OWN = [name for name in CUDAGraphsOptions.model_fields if name not in TransformOptions.model_fields]


def test_specification() -> None:
    (spec,) = plugin.thunder_transforms()
    module, _, name = spec.load.partition(":")
    transform = getattr(import_module(module), name)(spec.options())
    assert (spec.name, transform) == (CUDAGraphs.name, CUDAGraphs())


def test_options_are_the_fields() -> None:
    assert [field.name for field in fields(CUDAGraphs)] == OWN


def test_what_the_package_exports() -> None:
    for name in thunder_plugin_cudagraphs.__all__:
        assert getattr(thunder_plugin_cudagraphs, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Graphs'"):
        _ = thunder_plugin_cudagraphs.Graphs


def test_what_the_examples_of_the_readme_print(capsys: pytest.CaptureFixture[str]) -> None:
    (examples,) = [case for case in package_cases(__file__) if case.id == "readme-examples"]
    examples.run()
    assert "cudagraphs, inference" in capsys.readouterr().out
