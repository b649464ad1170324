"""Settings for all tests of the package, and a device on the CPU that captures."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("THUNDER_VERIFY", "1")  # every trace is checked after each transform
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch
from recording import RecordingBackend

from thunder_plugin_cudagraphs import device as devices

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _memory_is_free_again() -> Iterator[None]:
    """On a GPU the tests share one device: what one leaves behind must not be in the way of the next."""
    yield
    if torch.cuda.is_available():
        gc.collect()
        devices.release_memory()
        torch.cuda.empty_cache()


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> RecordingBackend:
    """Programs on the CPU are captured by this."""
    made = RecordingBackend(torch.device("cpu"))
    monkeypatch.setitem(devices.BACKENDS, "cpu", lambda device: made)
    monkeypatch.setattr(devices, "_devices", {})
    return made


CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
)


@pytest.fixture(params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> str:
    """Where programs are captured: by the recording backend, or for real."""
    if request.param == "cpu":
        request.getfixturevalue("backend")
    return str(request.param)
