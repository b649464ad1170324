"""Settings for all tests of the package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("THUNDER_VERIFY", "1")  # every trace is checked after each transform
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch

from thunder_testing.processes import fake_process_group

torch.set_num_threads(1)


@pytest.fixture
def fake_group() -> Iterator[None]:
    """A fake process group of two ranks, of which this process is rank 0."""
    with fake_process_group():
        yield
