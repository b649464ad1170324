"""Functions of PyTorch that tell a state of its which is no part of `GlobalState`, as it does not change operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.guards.guard import PlainGuard
from thunder_core.guards.source import ConstantSource
from thunder_core.guards.steps import ReferentSource

_FUNCTIONS: Final[dict[str, Callable[[], Any]]] = {
    "torch.initial_seed": torch.initial_seed,
    "torch.get_num_threads": torch.get_num_threads,
    "torch.get_num_interop_threads": torch.get_num_interop_threads,
    "torch.is_anomaly_enabled": torch.is_anomaly_enabled,
    "torch.is_anomaly_check_nan_enabled": torch.is_anomaly_check_nan_enabled,
}
_names: Final = {id(function): name for name, function in _FUNCTIONS.items()}


def state_guard(value: Any) -> PlainGuard | None:
    """The guard on what the function ``value`` tells now; None for all other objects."""
    name = _names.get(id(value))
    return None if name is None else PlainGuard(ReferentSource(ConstantSource(value, name)), value())
