"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the tables of options in the README anew."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

import pytest
import torch

from thunder_core.passes.transform import Place, Transform
from thunder_core.plugins import TransformSpec
from thunder_plugin_debug import plugin
from thunder_plugin_debug.options import LineCallbacksOptions
from thunder_testing import package_suite
from thunder_testing.package.suite import package_cases

test_package = package_suite(__file__)
SPECS = {spec.name: spec for spec in plugin.thunder_transforms()}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_specifications(spec: TransformSpec) -> None:
    if spec.name == "nvtx_ranges":
        pytest.importorskip("torch._C._nvtx", reason="PyTorch was built without CUDA")
        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")
    module, _, name = spec.load.partition(":")
    options: Any = spec.options()
    if spec.name == "line_callbacks":
        options = LineCallbacksOptions(before_line="builtins:print", include=("a",))
    transform = getattr(import_module(module), name)(options)
    assert isinstance(transform, Transform)
    assert (transform.name, transform.place) == (spec.name, Place.LAST)
    assert spec.summary


def test_options_reach_the_transforms() -> None:
    """Each option that is not about whether the transform is there is an attribute of it."""
    for spec in SPECS.values():
        module = import_module(spec.load.partition(":")[0])
        (kind,) = [value for value in vars(module).values() if getattr(value, "name", None) == spec.name]
        given = set(spec.options.model_fields) - {"enabled", "optional"}
        assert given == {field.name for field in fields(kind)}, spec.name


def test_what_the_examples_of_the_readme_print(capsys: pytest.CaptureFixture[str]) -> None:
    (examples,) = [case for case in package_cases(__file__) if case.id == "readme-examples"]
    examples.run()
    assert "torch.nn.functional.gelu" in capsys.readouterr().out
