"""Private names of PyTorch and Transformer Engine that are used exist, and behave as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_te
from thunder_plugin_te.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def task(function: Any) -> None:
    assert function() == -1
    found: list[int] = []
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: found.append(function()))
    y.backward()
    assert found[0] >= 0


def holds(name: str, *, columns: bool = False, blocks: bool = False) -> Callable[[], None]:
    """A check that a quantized tensor of the library keeps one of the parts that it is made of by that name."""

    def check() -> None:
        from thunder_plugin_te import library

        parts = torch.zeros(128, 128, dtype=torch.uint8), torch.ones(1)
        make = library._columns if columns else library._rows
        made = make(parts, "128x128" if blocks else "tensor", "e4m3", torch.float32)
        assert getattr(made, name) is parts["scale" in name]

    return check


CHECKS: dict[str, Callable[..., object]] = {
    "current_graph_task_id": task,
    "data": holds("_data"),
    "scale_inv": holds("_scale_inv"),
    "transpose": holds("_transpose", columns=True),
    "rowwise_data": holds("_rowwise_data", blocks=True),
    "rowwise_scale_inv": holds("_rowwise_scale_inv", blocks=True),
    "columnwise_data": holds("_columnwise_data", columns=True, blocks=True),
    "columnwise_scale_inv": holds("_columnwise_scale_inv", columns=True, blocks=True),
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_te.__file__).parent])
