"""Each plugin with nothing but its dependencies: it loads, and a program runs with what it offers."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.test_plugins import PLUGINS, PROJECTS
from thunder_testing.forked import LIBRARIES, run_forked

pytestmark = pytest.mark.slow

BY_DISTRIBUTION = {project["name"]: project for project in PROJECTS.values()}

PROGRAM = """
import sys

name, absent = sys.argv[1], set(sys.argv[2:])


class Absent:
    def find_spec(self, module, path=None, target=None):
        if module.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {module!r}, which is none of the dependencies", name=module)


sys.meta_path.insert(0, Absent())

from thunder_core.plugins.distributions import Installed

with_plugins = Installed.with_plugins
Installed.with_plugins = lambda self: [
    one for one in with_plugins(self) if one.name.replace("-", "_") not in absent
]

import torch

import thunder
from thunder_core.plugins import ExecutorSpec, InterceptionsSpec, TensorClassesSpec, TransformSpec
from thunder_core.plugins.host import host
from thunder_core.plugins.states import Offered

def enabled(spec):
    # An option that must be given gets the first example of its field.
    required = {key: field.examples[0] for key, field in spec.options.model_fields.items() if field.is_required()}
    return {f"{name}.{spec.name}": {"optional": True, **required}}


def changes_modules(spec):
    offered = host().import_object(Offered(loaded, spec))
    return getattr(getattr(offered, "__self__", None), "of_modules", False)


loaded = host().load(name)
of_modules = [spec for spec in loaded.of(TransformSpec) if changes_modules(spec)]
if of_modules:
    module, x = torch.nn.Sequential(torch.nn.Linear(32, 32)), torch.randn(4, 32)
    compiled = thunder.jit(module, transforms=[enabled(of_modules[0])])
    torch.testing.assert_close(compiled(x), module(x), rtol=0.1, atol=0.1)
    assert thunder.explain(compiled).module_notes
parts = {
    kind: [enabled(spec) for spec in loaded.of(spec_kind) if spec not in of_modules]
    for kind, spec_kind in (
        ("executors", ExecutorSpec),
        ("transforms", TransformSpec),
        ("tensor_classes", TensorClassesSpec),
    )
}
if not any(parts.values()) and loaded.of(InterceptionsSpec):  # the plugin's name selects its only table
    parts["interceptions"] = [name]


def program(x, weight, bias):
    return torch.nn.functional.relu(torch.nn.functional.linear(x, weight, bias) + 1).float().mean()


arguments = [torch.randn(size, requires_grad=True) for size in ((4, 8), (8, 8), (8,))]
compiled = thunder.jit(program, **{kind: entries for kind, entries in parts.items() if entries})
result, expected = compiled(*arguments), program(*arguments)
torch.testing.assert_close(result, expected)
torch.testing.assert_close(torch.autograd.grad(result, arguments), torch.autograd.grad(expected, arguments))
report = thunder.explain(compiled)
assert not [line for line in report.details().splitlines() if "none of the dependencies" in line], report.details()
"""


def needed(project: dict[str, Any]) -> set[str]:
    """The distributions of this repository that a project needs, itself included."""
    found = {project["name"]}
    for requirement in project.get("dependencies", ()):
        name = re.split(r"[^\w-]", requirement)[0]
        found |= needed(BY_DISTRIBUTION[name]) if name in BY_DISTRIBUTION else set()
    return found


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
@pytest.mark.battery
def test_with_its_dependencies_alone(folder: Path) -> None:
    absent = [name.replace("-", "_") for name in BY_DISTRIBUTION.keys() - needed(PROJECTS[folder])]
    environment = {key: value for key, value in os.environ.items() if key != "THUNDER_PLUGINS"}
    (name,) = PROJECTS[folder]["entry-points"]["thunder.plugins"]
    done = run_forked(PROGRAM, name, *sorted(absent), environment=environment, preloaded=LIBRARIES)
    if "cannot be used: it needs" in done.stderr:
        pytest.skip("its library is not installed")
    assert done.returncode == 0, done.stderr
