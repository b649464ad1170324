"""Settings for all tests, those of plugins too: fixed seeds, and Triton's interpreter where there is no GPU.

Triton decides it when it is imported, which modules of other tests do: so before any of them is.
"""

import gc
import os
from collections.abc import Iterator

import pytest
import torch

from thunder_testing.seeding import seed_generators

pytest_plugins = ("tests.batteries", "tests.time_limits", "tests.time_table")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    seed_generators(0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """No garbage collection while all files are imported, which would free nothing and take a fifth of that time.

    What exists then, a million objects, is excluded from later ones: each would take two seconds.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
