"""A package with a plugin, for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_project import Package

from thunder_core.plugins.host import reset_host


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    for name in ("THUNDER_PLUGINS", "THUNDER_STRICT", "UPDATE_DOCUMENTS"):
        monkeypatch.delenv(name, raising=False)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    reset_host()
    yield Package(tmp_path / "project", site)
    reset_host()
    for name in [name for name in sys.modules if name.startswith("thunder_test_module_package_")]:
        del sys.modules[name]
