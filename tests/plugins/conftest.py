"""Plugins made for a test: metadata as pip writes it, and modules, in a folder that is first on the path."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thunder_core.plugins.host import host, reset_host
from thunder_core.plugins.states import PluginRecord
from thunder_testing.distributions import write_metadata

_numbers = itertools.count()

OFFERS_AN_EXECUTOR = """
from thunder_core.plugins import ExecutorSpec, hookimpl

@hookimpl
def thunder_executors():
    return [ExecutorSpec({name!r}, "{module}:make")]

def make(options):
    return "the executor"
"""


class Site:
    """A folder of installed distributions, all gone after the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def distribution(self, name: str, *, folder: Path | None = None, **metadata: Any) -> Path:
        """Metadata of one distribution, as `write_metadata` takes it."""
        return write_metadata(folder or self.folder, name, **metadata)

    def module(self, source: str) -> str:
        """A new module with this source; its name."""
        name = f"thunder_test_module_{next(_numbers)}"
        (self.folder / f"{name}.py").write_text(source.replace("{module}", name))
        importlib.invalidate_caches()
        return name

    def plugin(self, name: str, source: str | None = None, **metadata: object) -> str:
        """A distribution ``plugin-NAME`` with one plugin, which offers an executor of its name; the module's name."""
        module = self.module(source if source is not None else OFFERS_AN_EXECUTOR.replace("{name!r}", repr(name)))
        self.distribution(f"plugin-{name.replace('_', '-')}", plugins={name: module}, **metadata)
        return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delenv("THUNDER_PLUGINS", raising=False)
    monkeypatch.delenv("THUNDER_STRICT", raising=False)
    made = Site(folder)
    made.distribution("thunder-core", version="0.5.0")
    reset_host()
    yield made
    reset_host()
    for name in [name for name in sys.modules if name.startswith("thunder_test_module_")]:
        del sys.modules[name]


def record(name: str) -> PluginRecord:
    """The record of the one plugin of this name."""
    (found,) = [found for found in host().records if found.name == name]
    return found
