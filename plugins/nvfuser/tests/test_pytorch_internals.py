"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_nvfuser
from thunder_plugin_nvfuser.pytorch_internals import NAMES
from thunder_testing import private_names_suite


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


def _is(value: Any, kind: Any) -> None:
    assert isinstance(value, kind)


def schema(read: Any) -> None:
    found = read(torch.ops.aten.add_.Tensor)
    assert (found.name, found.overload_name, found.is_mutable) == ("aten::add_", "Tensor", True)


def operator(start: str) -> Callable[[Any], None]:
    def check(found: Any) -> None:
        assert str(found._schema).startswith(start), found._schema

    return check


CHECKS: dict[str, Callable[..., object]] = {
    "PROMOTION": promotion,
    "elementwise_dtypes": dtypes,
    "prims_definitions": lambda module: torch.ops.prims.convert_element_type.default,
    "disable_current_modes": disables,
    "OpOverload": lambda kind: _is(torch.ops.aten.relu.default, kind),
    "schema_of": schema,
    "aten_log_softmax": operator("aten::_log_softmax(Tensor self, int dim, bool half_to_float)"),
    "aten_log_softmax_backward_data": operator(
        "aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype)"
    ),
    "aten_softmax": operator("aten::_softmax(Tensor self, int dim, bool half_to_float)"),
    "aten_softmax_backward_data": operator(
        "aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype)"
    ),
    "aten_to_copy": operator("aten::_to_copy(Tensor self, *, ScalarType? dtype=None"),
    "aten_unsafe_view": operator("aten::_unsafe_view(Tensor self, SymInt[] size)"),
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_nvfuser.__file__).parent])
