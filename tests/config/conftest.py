"""Every test has the plugins of `distributions`, a fresh host, and an empty working directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.config.distributions import install
from thunder_core.plugins.host import reset_host


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder)
    return folder


@pytest.fixture(autouse=True)
def _plugins(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("THUNDER_CONFIG", "THUNDER_PLUGINS", "THUNDER_STRICT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    reset_host()
    yield
    reset_host()
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(site)):
            del sys.modules[name]
