"""The package as a plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import thunder_plugin_numpy
from thunder_plugin_numpy.pytorch_internals import NAMES
from thunder_testing import package_suite, private_names_suite

test_package = package_suite(__file__)


def _layer(module: Any) -> None:
    assert module.sum(module.ones((2, 3)), axis=0).tensor.tolist() == [2, 2, 2]


def _array(kind: Any) -> None:
    tensor = torch.arange(6).reshape(2, 3)
    assert kind(tensor)[0, [0, 2]].tensor.tolist() == np.arange(6).reshape(2, 3)[0, [0, 2]].tolist()


test_private_names = private_names_suite(
    NAMES, {"torch_numpy": _layer, "LayerArray": _array}, folders=[Path(thunder_plugin_numpy.__file__).parent]
)
