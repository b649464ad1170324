"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder_plugin_torchscript
from thunder_plugin_torchscript.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def _script() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(torch.nn.Linear(2, 3))


def parses_schema(parse: Callable[..., Any]) -> None:
    schema = parse("aten::tensor.int(int t, *, ScalarType? dtype=None) -> Tensor")
    assert [str(argument.real_type) for argument in schema.arguments] == ["int", "Optional[ScalarType]"]


def operator_of_interpreter(get: Callable[..., Any]) -> None:
    assert get("prim::dtype")[0](torch.zeros(1)) == 6


def has_kernels(find: Callable[..., Any]) -> None:
    find("aten::eq", "Tensor")
    with pytest.raises(RuntimeError):
        find("aten::eq", "int")


def state_of_script(read: Callable[..., Any]) -> None:
    module = _script()
    assert read(module) == module.forward.owner


CHECKS: dict[str, Callable[..., object]] = {
    "parse_schema": parses_schema,
    "jit_get_operation": operator_of_interpreter,
    "dispatch_find_schema_or_throw": has_kernels,
    "state_of_script": state_of_script,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_torchscript.__file__).parent])
