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

PROGRAM = Path(__file__).with_name("plugin_program.py")


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
