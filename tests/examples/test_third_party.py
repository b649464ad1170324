"""The packages in ``examples/third_party``: small, outside of Thunder, and tested where their library is installed."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from thunder_core.plugins.host import host
from thunder_core.plugins.states import PluginState

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted((ROOT / "examples" / "third_party").iterdir())


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_a_package_is_small_and_outside(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name = project["name"].removeprefix("thunder-").replace("-", "_")
    assert set(project["entry-points"]["thunder.plugins"]) == {name}
    assert project["optional-dependencies"].keys() >= {"lib", "test"}
    sources = list((folder / "src").rglob("*.py"))
    lines = [line for source in sources for line in source.read_text().splitlines() if line.strip()]
    assert len(lines) <= 200  # without empty ones
    assert "From an empty folder to green conformance" in (folder / "README.md").read_text()
    for package in ("thunder_core", "thunder_frontend", "thunder", "plugins"):
        for source in (ROOT / package).rglob("*.py"):
            assert f"thunder_{name}" not in source.read_text(), source


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_conformance_where_the_package_is_installed(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    try:
        importlib.metadata.version(project["name"])
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{project['name']} is not installed")
    (plugin,) = project["entry-points"]["thunder.plugins"]
    record = next(each for each in host().records if each.name == plugin)
    if record.state not in (PluginState.AVAILABLE, PluginState.LOADED):
        pytest.skip(f"{plugin}: {record.state.value}: {record.why}")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
