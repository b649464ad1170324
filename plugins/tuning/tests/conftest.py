"""Settings for all tests of the package, and plugins whose kernels spend time of a virtual clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["THUNDER_CACHE_DIR"] = ""  # no test finds what another one measured
sys.path.insert(0, str(Path(__file__).parent))

import torch
from timed_executors import CLOCK, NAMES, VirtualClock

from thunder_core.plugins.host import reset_host
from thunder_testing.distributions import write_metadata

torch.set_num_threads(1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualClock]:
    """A clock that only the kernels of the plugins of `timed_executors` advance; no other executor is installed."""
    site = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(str(site))
    points = {name: f"timed_executors:PLUGINS.{name}" for name in NAMES}
    write_metadata(site, "thunder-plugin-timed", version="1.2", plugins=points)
    monkeypatch.setenv("THUNDER_PLUGINS", f"core,tuning,debug,{','.join(NAMES)}")
    monkeypatch.delenv("THUNDER_VERIFY", raising=False)  # it raises for wrong results itself
    monkeypatch.setattr("thunder_plugin_debug.stopwatch.perf_counter_ns", lambda: round(CLOCK.time * 1e9))
    CLOCK.time = 0.0
    reset_host()
    yield CLOCK
    monkeypatch.undo()
    reset_host()
