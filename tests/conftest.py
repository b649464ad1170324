"""Settings for the core's tests: one thread, no hub access, PyTorch's global modes restored."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("THUNDER_VERIFY", "1")  # every trace of every test is checked between passes
os.environ["THUNDER_CACHE_DIR"] = ""  # no test finds what another one compiled

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _modes_are_left_as_found():
    """A test that leaves a PyTorch mode on would change the meaning of the tests after it."""
    before = _modes()
    yield
    after = _modes()
    torch.set_grad_enabled(before["grad"])
    torch.set_default_dtype(before["dtype"])
    torch.use_deterministic_algorithms(before["deterministic"])
    assert after == before, "the test left PyTorch's global modes changed"


def _modes() -> dict[str, object]:
    return {
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first. An address in an id is an error, since all processes collect the same."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: the id holds an address; leave `ids` to pytest or give names")
    slow = {item.path for item in items for mark in ("slow", "in_every_part") if item.get_closest_marker(mark)}
    items.sort(key=lambda item: item.path not in slow)
