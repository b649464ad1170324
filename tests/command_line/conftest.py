"""Commands in this process and in a new one; programs, configurations and plugins for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from thunder.command_line.main import main
from thunder_core.plugins.host import reset_host
from thunder_testing.distributions import write_metadata
from thunder_testing.forked import run_forked

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import torch
from torch.nn import functional as F


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.last = torch.nn.Linear(8, 4)

    def forward(self, x):
        for _ in range(2):
            x = self.last(F.silu(self.first(x)))
        return x


def inputs():
    return torch.randn(2, 4)


model = Net()
"""

COMMAND = "import runpy; runpy.run_module('thunder', run_name='__main__', alter_sys=True)"


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(tmp_path, monkeypatch, capfd) -> Callable[..., Ended]:
    """Runs a command in this process, in an empty directory, and leaves the process as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "THUNDER_CONFIG", "THUNDER_PLUGINS", "THUNDER_STRICT"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Ended:
        reset_host()
        capfd.readouterr()
        code = main(arguments)
        return Ended(code, *capfd.readouterr())

    yield run
    reset_host()
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def core_only(command, monkeypatch) -> None:
    """No plugins but the core's own parts."""
    monkeypatch.setenv("THUNDER_PLUGINS", "core")


@pytest.fixture
def shell(tmp_path) -> Callable[..., Ended]:
    """Runs a command in a new process, whose output is no terminal."""

    def run(*arguments: str, **variables: str) -> Ended:
        environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
        environment["THUNDER_PROGRESS"] = "0"  # lines that only a slow machine prints
        done = run_forked(COMMAND, *arguments, environment=environment | variables, directory=tmp_path, path=[ROOT])
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def program(tmp_path) -> Path:
    """``program.py`` in the directory of the command."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def install(tmp_path_factory, command, monkeypatch) -> Callable[..., None]:
    """Installs a plugin for this process: a module, and the metadata that pip would write for it."""
    site = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(str(site))

    def write(name: str, source: str, api: int = 1) -> None:
        (site / f"{name}.py").write_text(source)
        points = {"plugins": {name: name}, "interfaces": {name: api}}
        write_metadata(site, f"thunder-plugin-{name}", version="1.2", **points)

    yield write
    for name in [name for name, module in sys.modules.items() if str(site) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]
