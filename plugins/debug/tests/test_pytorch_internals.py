"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_debug
from thunder_plugin_debug.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def version(read: Any) -> None:
    x = torch.ones(2)
    before = read(x)
    x[:1].add_(1)
    assert read(x) == before + 1


CHECKS: dict[str, Callable[..., object]] = {"version_of": version}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_debug.__file__).parent])
