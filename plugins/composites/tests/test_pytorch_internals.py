"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_composites
from thunder_plugin_composites.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def log_softmax(function: Any) -> None:
    x = torch.randn(2, 3)
    assert torch.equal(function(x, 1, False), torch.log_softmax(x, 1))


CHECKS: dict[str, Callable[..., object]] = {"native_log_softmax": log_softmax}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_composites.__file__).parent])
