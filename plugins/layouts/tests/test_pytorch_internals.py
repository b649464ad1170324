"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_layouts
from thunder_plugin_layouts.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def reinterpret(function: Any) -> None:
    value = torch.arange(6.0)
    view = function(value, (2, 2), (1, 2), 1)
    assert view.data_ptr() == value[1:].data_ptr()
    assert torch.equal(view, value.as_strided((2, 2), (1, 2), 1))


CHECKS: dict[str, Callable[..., object]] = {"reinterpret_tensor": reinterpret}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_layouts.__file__).parent])
