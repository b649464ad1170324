"""The wheel and the source archive: what they hold, what they require, and that the wheel runs by itself."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.packaging.wheels import metadata
from thunder_testing.forked import LIBRARIES, run_forked

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def archives(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(archives) -> Path:
    (path,) = archives.glob("*.whl")
    return path


@pytest.mark.slow
def test_wheel_holds_the_two_packages_and_the_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    packages = {"thunder", "thunder_core", "thunder_frontend"}
    assert {name.partition("/")[0].partition("-")[0] for name in names} == packages
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {f"{package}/py.typed" for package in packages} <= set(names)


@pytest.mark.slow
def test_wheel_holds_every_module_of_the_checkout(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}
    tracked = subprocess.run(
        ["git", "ls-files", "thunder/*.py", "thunder_core/*.py"], cwd=ROOT, capture_output=True, text=True
    )
    if tracked.returncode:
        pytest.skip("not a git checkout")
    assert {name for name in tracked.stdout.split() if (ROOT / name).exists()} <= held


def test_what_is_required(wheel):
    """No GPU library, and nothing that only some executors need."""
    required = [line for line in metadata(wheel).get_all("Requires-Dist") if "extra ==" not in line]
    names = [line.partition(">")[0] for line in required]
    assert names == ["packaging", "pluggy", "pydantic", "pyyaml", "rich", "scipy", "torch", "typer"]


def test_source_archive_holds_tests_and_documents(archives):
    (path,) = archives.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "ARCHITECTURE.md", "LICENSE", "pyproject.toml", "conftest.py", "tests/conftest.py"} <= names
    assert not [name for name in names if "__pycache__" in name or (name.startswith(".") and name != ".gitignore")]


@pytest.mark.slow
def test_wheel_compiles_a_program_outside_of_the_checkout(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    # A file, not -c: source lines are read for messages.
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, thunder\n"
        "f = thunder.jit(lambda x: torch.relu(x) + 1)\n"
        "assert torch.equal(f(torch.ones(2)), torch.full((2,), 2.0))\n"
        "print(thunder.__file__)\n"
    )
    done = run_forked(program, directory=tmp_path, path=[tmp_path / "installed"], preloaded=LIBRARIES)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "installed")


def test_version_is_that_of_the_distribution(wheel):
    import thunder

    assert thunder.__version__ == metadata(wheel)["Version"]
