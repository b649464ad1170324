"""The higher-order operators in exported graphs: functions that run them as the user's code did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from thunder_core.recording import autocast_region
from thunder_plugin_export.pytorch_internals import auto_functionalized_v2_dense

Run = Callable[..., Any]
"""Runs a body, a graph module, with arguments."""


def _grad_mode(run: Run, enabled: bool, body: Any, *args: Any) -> Any:
    with torch.set_grad_enabled(enabled):
        return run(body, *args)


def _autocast(
    run: Run, device_type: str, dtype: Any, enabled: bool, cache_enabled: bool | None, body: Any, *args: Any
) -> Any:
    with autocast_region(device_type, dtype, enabled, cache_enabled):
        return run(body, *args)


def _cond(run: Run, predicate: Any, true_body: Any, false_body: Any, operands: Any = ()) -> Any:
    """A branch that sizes and numbers choose, which are constants of a compiled program."""
    if isinstance(predicate, torch.Tensor):
        return NotImplemented
    return run(true_body if predicate else false_body, *operands)


def _functional(run: Run, operator: Any, **arguments: Any) -> Any:
    """A functionalized call of an operator that writes: PyTorch copies the written tensors and calls the operator."""
    return auto_functionalized_v2_dense(operator, **arguments)


RUN: Final[Mapping[str, Callable[..., Any]]] = {
    "wrap_with_set_grad_enabled": _grad_mode,
    "wrap_with_autocast": _autocast,
    "cond": _cond,
    "auto_functionalized_v2": _functional,
}
"""By the name of the operator, a function of `Run` and its arguments; NotImplemented if they cannot be recorded."""
