"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_te
from thunder_core.testing import private_names_suite
from thunder_plugin_te.pytorch_internals import NAMES


def task(function: Any) -> None:
    assert function() == -1
    found: list[int] = []
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: found.append(function()))
    y.backward()
    assert found[0] >= 0


CHECKS: dict[str, Callable[..., object]] = {"current_graph_task_id": task}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_te.__file__).parent])
