"""A fresh virtual environment that sees what is installed in this one, and the commands that users type in it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# What users have as installed commands. No network: what has to be there is there, and is not fetched again.
WRAPPERS = {
    "thunder": '"{python}" -m thunder "$@"',
    "pytest": '"{python}" -m pytest -p no:cacheprovider "$@"',
    "pip": '"{pip}" -m pip --python "{python}" --disable-pip-version-check --quiet "$1" '
    '--no-index --no-build-isolation --no-deps "${{@:2}}"',
}


@dataclass(frozen=True)
class Environment:
    """A virtual environment in ``folder``."""

    folder: Path

    def run(self, line: str, directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell, with ``more`` environment variables; ``stdout`` has both streams of its output."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("THUNDER_", "PYTEST_"))}
        variables |= {"PATH": path, "COLUMNS": "120", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        variables.pop("PYTHONPATH", None)
        variables |= more
        return subprocess.run(
            ["bash", "-c", line],
            cwd=directory,
            env=variables,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )


def make_environment(folder: Path) -> Environment:
    """A new environment with ``thunder``, ``pytest`` and ``pip`` on its path."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    packages = sysconfig.get_path("purelib")
    # `addsitedir` follows the .pth files of this environment, as those of editable installations.
    (site / "outer.pth").write_text(f"import site; site.addsitedir({packages!r})\n{ROOT}\n")
    for name, command in WRAPPERS.items():
        script = folder / "bin" / name
        script.write_text(f"#!/usr/bin/env bash\nexec {command.format(python=python, pip=sys.executable)}\n")
        script.chmod(0o755)
    return Environment(folder)
