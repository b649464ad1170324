"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_nvfuser
from thunder_core.testing import private_names_suite
from thunder_plugin_nvfuser.pytorch_internals import NAMES


def disables(disable: Any) -> None:
    with torch.device("meta"), disable():
        assert torch.empty(1).device.type == "meta"  # torch-function modes stay; those below them go
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refuses(TorchDispatchMode):
        def __torch_dispatch__(self, *args: Any) -> Any:
            raise AssertionError

    with Refuses(), disable():
        torch.ones(1)


def promotion(kinds: Any) -> None:
    assert kinds.DEFAULT != kinds.INT_TO_FLOAT != kinds.ALWAYS_BOOL


def dtypes(function: Any) -> None:
    kinds = NAMES.bind("PROMOTION")
    integers = torch.ones(1, dtype=torch.int64)
    assert function(integers, type_promotion_kind=kinds.INT_TO_FLOAT) == (torch.float32, torch.float32)
    half = torch.ones(1, dtype=torch.float16)
    assert function(half, type_promotion_kind=kinds.DEFAULT) == (torch.float32, torch.float16)


CHECKS: dict[str, Callable[..., object]] = {
    "PROMOTION": promotion,
    "elementwise_dtypes": dtypes,
    "prims_definitions": lambda module: torch.ops.prims.convert_element_type.default,
    "disable_current_modes": disables,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_nvfuser.__file__).parent])
