"""Puts the fake of Transformer Engine in place, where the real one is not; tests with it run on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import fake_transformer_engine as fake

if not fake.REAL:
    fake.install()


@pytest.fixture
def calls() -> list[str]:
    """The calls of the fake library since the test began."""
    if fake.REAL:
        pytest.skip("Transformer Engine is installed: test_cuda.py has the tests with it")
    fake.CALLS.clear()
    return fake.CALLS
