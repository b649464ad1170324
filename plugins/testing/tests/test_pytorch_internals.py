"""Each private name of PyTorch that the tests use exists, and behaves as they take for granted."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_testing
from thunder_testing import private_names_suite
from thunder_testing.pytorch_internals import DYNAMO, NAMES


def operators(table: Any) -> None:
    (relu,) = [info for info in table if info.name == "nn.functional.relu"]
    sample = next(iter(relu.sample_inputs("cpu", torch.float32, requires_grad=False)))
    assert isinstance(sample.input, torch.Tensor)
    assert isinstance(sample.args, tuple)
    assert isinstance(sample.kwargs, dict)
    assert torch.float32 in relu.supported_dtypes("cpu")


def operator_info(cls: Any) -> None:
    assert isinstance(NAMES.bind("op_db")[0], cls)


def common_utilities(module: Any) -> None:
    assert isinstance(module.SEED, int)
    assert callable(module.np.random.seed)


def dynamo() -> None:
    assert importlib.util.find_spec(DYNAMO) is not None


CHECKS: dict[str, Callable[..., object]] = {
    "op_db": operators,
    "common_test_utilities": common_utilities,
    "OpInfo": operator_info,
    "dynamo": dynamo,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_testing.__file__).parent])
