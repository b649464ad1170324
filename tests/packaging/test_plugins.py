"""What the packages of plugins have in common."""

from __future__ import annotations

import importlib
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.command_line.environment import ROOT
from thunder_core.plugins import TransformSpec
from thunder_core.plugins.host import host
from thunder_core.plugins.states import Offered

PROJECTS = {path.parent: tomllib.loads(path.read_text())["project"] for path in ROOT.glob("plugins/*/pyproject.toml")}
PLUGINS = [folder for folder, project in PROJECTS.items() if "thunder.plugins" in project.get("entry-points", {})]


def test_modules_beside_the_tests_have_names_of_their_own() -> None:
    """Tests of all plugins run in one process, where one ``programs`` would be another's."""
    helpers = [path.stem for path in (ROOT / "plugins").glob("*/tests/*.py") if not path.stem.startswith("test_")]
    twice = [name for name, count in Counter(helpers).items() if count > 1]
    assert set(twice) <= {"conftest", "__init__"}


def test_tests_of_plugins_depend_on_the_package_for_tests() -> None:
    without = [folder.name for folder in PLUGINS if "thunder-testing>=0.1" not in _tests(folder)]
    assert not without


def _tests(plugin: Path) -> list[str]:
    """What the plugin's extra ``test`` requires."""
    extras: dict[str, list[str]] = PROJECTS[plugin]["optional-dependencies"]
    return extras["test"]


@pytest.mark.parametrize("name", ["cudagraphs", "layouts", "matmul", "simplify"])
def test_transforms_are_exported_and_have_the_defaults_of_their_options(name: str) -> None:
    package = importlib.import_module(f"thunder_plugin_{name}")
    loaded = host().load(name)
    for spec in loaded.of(TransformSpec):
        transform = host().import_object(Offered(loaded, spec))(spec.options())
        assert transform == getattr(package, type(transform).__name__)()
        assert type(transform).__name__ in package.__all__
