"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_tuning
from thunder_plugin_tuning.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def version(read: Any) -> None:
    x = torch.ones(2)
    before = read(x)
    x[:1].add_(1)
    assert read(x) == before + 1


def hooks_of_parameters() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    assert not parameter._backward_hooks
    assert not parameter._post_accumulate_grad_hooks
    parameter.register_hook(lambda gradient: None)
    parameter.register_post_accumulate_grad_hook(lambda parameter: None)
    assert parameter._backward_hooks
    assert parameter._post_accumulate_grad_hooks


CHECKS: dict[str, Callable[..., object]] = {
    "version_of": version,
    "backward_hooks": hooks_of_parameters,
    "post_accumulate_grad_hooks": hooks_of_parameters,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_tuning.__file__).parent])
