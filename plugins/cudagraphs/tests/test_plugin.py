"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

from dataclasses import fields

import pytest

from thunder_core.plugins import TransformOptions
from thunder_plugin_cudagraphs import CUDAGraphs
from thunder_plugin_cudagraphs.options import CUDAGraphsOptions
from thunder_testing import package_suite
from thunder_testing.package.suite import package_cases

test_package = package_suite(__file__)
OWN = [name for name in CUDAGraphsOptions.model_fields if name not in TransformOptions.model_fields]


def test_options_are_the_fields() -> None:
    assert [field.name for field in fields(CUDAGraphs)] == OWN


def test_what_the_examples_of_the_readme_print(capsys: pytest.CaptureFixture[str]) -> None:
    (examples,) = [case for case in package_cases(__file__) if case.id == "readme-examples"]
    examples.run()
    assert "cudagraphs, inference" in capsys.readouterr().out
