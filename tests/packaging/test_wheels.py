"""Wheels of the core, of all plugins and of what tests them, installed away from the checkout."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.command_line.environment import ROOT, Environment, make_environment
from tests.packaging.test_plugins import PLUGINS, PROJECTS
from tests.packaging.wheels import metadata

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    sources = [str(ROOT), str(ROOT / "recommended"), *map(str, PROJECTS)]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    found = make_environment(tmp_path_factory.mktemp("environment"))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "--python",
        f"{found.folder}/bin/python",
    ]
    command = [*pip, "install", "--ignore-installed", "--no-deps", "--no-index", *map(str, wheels)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return found


def test_there_is_a_wheel_for_each(wheels: list[Path]) -> None:
    names = [project["name"] for project in PROJECTS.values()]
    assert {metadata(wheel)["Name"] for wheel in wheels} == {"thunder-core", "thunder-compiler", *names}


def test_wheels_can_be_released(wheels: list[Path]) -> None:
    """Metadata, licenses, entry points and types are complete, and what they require of each other is built."""
    assert not runpy.run_path(str(ROOT / "scripts" / "release"))["wheel_problems"](wheels)


def test_wheels_hold_what_is_in_the_checkout(wheels: list[Path]) -> None:
    tracked = subprocess.run(["git", "ls-files", "plugins"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    expected = {path.split("/src/")[1] for path in tracked.stdout.split() if "/src/" in path and (ROOT / path).exists()}
    held: set[str] = set()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            held |= set(archive.namelist())
    assert expected <= held


def test_requirements_of_plugins_are_distributions_of_this_repository_and_extras(wheels: list[Path]) -> None:
    """Installing a plugin must not fetch the vendor's library: that is what the extra ``lib`` is for."""
    plugins = {PROJECTS[folder]["name"] for folder in PLUGINS}
    libraries = {project["name"] for project in PROJECTS.values()} - plugins - {"thunder-testing"}
    for wheel in wheels:
        found = metadata(wheel)
        if found["Name"] in plugins:
            required = [line for line in found.get_all("Requires-Dist", []) if "extra ==" not in line]
            names = {line.partition(">")[0] for line in required}
            assert {"thunder-core"} <= names <= {"thunder-core", *libraries, *plugins}, found["Name"]


def test_plugins_are_found_away_from_the_checkout(environment: Environment, tmp_path: Path) -> None:
    done = environment.run("thunder plugins --json", tmp_path)
    assert done.returncode == 0, done.stdout
    records = {record["name"]: record for record in json.loads(done.stdout)["plugins"]}
    assert {folder.name for folder in PLUGINS} <= set(records)
    assert set(records).isdisjoint(folder.name for folder in PROJECTS if folder not in PLUGINS)
    assert {record["state"] for record in records.values()} <= {"loaded", "library missing"}


def test_a_program_is_compiled_with_a_plugin(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch, thunder\n"
        "compiled = thunder.jit(lambda x: torch.relu(x) + 1, transforms=['line_timing'])\n"
        "assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))\n"
        "print(thunder.__file__)\n"
    )
    done = environment.run(f"{environment.folder}/bin/python program.py", tmp_path)
    assert done.returncode == 0, done.stdout
    assert Path(done.stdout.splitlines()[0]).is_relative_to(environment.folder)
