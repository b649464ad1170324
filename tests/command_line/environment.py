"""A fresh virtual environment that sees what is installed in this one, and the commands that users type in it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from thunder_testing.forked import PRELOADED, ForkServer

ROOT = Path(__file__).resolve().parents[2]

# What users have as installed commands. No network: what has to be there is there, and is not fetched again.
PIP = """#!/usr/bin/env bash
exec "{pip}" -m pip --python "{python}" --disable-pip-version-check --quiet "$1" \\
    --no-index --no-build-isolation --no-deps "${{@:2}}"
"""
# What a new interpreter does for packages that were installed meanwhile, then a module.
MODULE = """
import runpy, site, sys, sysconfig
site.addsitedir(sysconfig.get_path("purelib"))
sys.argv[1:1] = {arguments}
runpy.run_module("{module}", run_name="__main__", alter_sys=True)
"""
# Hypothesis, which OpInfo imports, is imported before pytest asks for it.
IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
COMMANDS: dict[str, tuple[str, ...]] = {"thunder": (), "pytest": ("-p", "no:cacheprovider", "-W", IMPORTED)}
"""Modules that are commands, and arguments that they always get."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment in ``folder``."""

    folder: Path

    def run(self, line: str, directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell, with ``more`` environment variables; ``stdout`` has both streams of its output."""
        return subprocess.run(
            ["bash", "-c", line],
            cwd=directory,
            env=self.variables() | more,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )

    def variables(self) -> dict[str, str]:
        """The environment variables of its commands."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("THUNDER_", "PYTEST_"))}
        variables.pop("PYTHONPATH", None)
        return variables | {
            "PATH": path, "COLUMNS": "120", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
            "THUNDER_PROGRESS": "0",  # lines that only a slow machine prints
        }  # fmt: skip


@contextmanager
def environment_with_commands(folder: Path) -> Iterator[Environment]:
    """A new environment with ``thunder``, ``pytest`` and ``pip`` on its path.

    A command takes a second instead of ten, because its process is forked from one that has imported PyTorch.
    """
    found = make_environment(folder)
    python = folder / "bin" / "python"
    pip = folder / "bin" / "pip"
    pip.write_text(PIP.format(python=python, pip=sys.executable))
    pip.chmod(0o755)
    preloaded = (*PRELOADED, "pytest", "torch.testing._internal.common_methods_invocations")
    server = ForkServer(preloaded, python, found.variables())
    try:
        for name, arguments in COMMANDS.items():
            server.write_command(folder / "bin" / name, MODULE.format(module=name, arguments=arguments))
        yield found
    finally:
        server.close()


def make_environment(folder: Path) -> Environment:
    """A new environment without commands."""
    venv.create(folder, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    packages = sysconfig.get_path("purelib")
    # `addsitedir` follows the .pth files of this environment, as those of editable installations.
    (site / "outer.pth").write_text(f"import site; site.addsitedir({packages!r})\n{ROOT}\n")
    return Environment(folder)
