"""Settings for all tests, those of plugins too: fixed seeds, and Triton's interpreter where there is no GPU.

Triton decides it when it is imported, which modules of other tests do: so before any of them is.
"""

import gc
import os
from collections.abc import Iterator

import pytest
import torch

from tests.batteries import part
from thunder_testing.seeding import seed_generators

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    seed_generators(0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """No garbage collection while all files are imported, which would free nothing and take a fifth of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect cases of tests with the mark ``battery`` that are not in the part of ``THUNDER_TEST_PART``."""
    cases = {item.nodeid for item in items if item.get_closest_marker("battery")}
    others = cases - set(part(cases))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in others])
    items[:] = [item for item in items if item.nodeid not in others]
