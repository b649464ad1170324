"""The set-up scripts: clear words when something is missing, nothing done twice."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "environment"


def _run(tmp_path: Path, python: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"THUNDER_ENV": str(tmp_path / "environment"), "PYTHON": python}
    return subprocess.run([SCRIPT, "examples"], env=environment, capture_output=True, text=True, check=False)


def _program(path: Path, text: str) -> str:
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_missing_python_is_named(tmp_path):
    done = _run(tmp_path, "no-such-python")
    assert done.returncode == 1
    assert "no 'no-such-python' found. Install Python 3.11 or newer" in done.stderr


def test_old_python_is_refused(tmp_path):
    old = _program(tmp_path / "python3.9", '[[ $1 == --version ]] && echo "Python 3.9.1"; exit 1\n')
    done = _run(tmp_path, old)
    assert done.returncode == 1
    assert "Python 3.9.1 is too old" in done.stderr


def test_an_unchanged_environment_is_reused(tmp_path):
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    _program(environment / "bin" / "python", "exit 1\n")
    plugins = sorted((ROOT / "plugins").glob("*/pyproject.toml"))
    content = "".join([path.read_text() for path in (ROOT / "pyproject.toml", *plugins, ROOT / "constraints.txt")])
    version = os.environ.get("THUNDER_TORCH", "2.13.0")
    (environment / ".thunder-examples").write_text(f"{content}{ROOT} {version}\n")
    done = _run(tmp_path, sys.executable)
    assert (done.returncode, done.stdout.strip()) == (0, str(environment / "bin" / "python")), done.stderr


@pytest.mark.parametrize("script", ["environment", "demo", "test", "check"])
def test_scripts_are_executable_and_parse(script):
    path = ROOT / "scripts" / script
    assert os.access(path, os.X_OK)
    subprocess.run(["bash", "-n", path], check=True)
