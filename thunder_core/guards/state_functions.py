"""Functions of PyTorch that tell a state of its which is no part of `GlobalState`, as it does not change operations.

A program that names one gets a guard on what it tells, or on more, where the function takes arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.guards.check import Check
from thunder_core.guards.conditions import VALUE
from thunder_core.guards.source import ConstantSource
from thunder_core.guards.steps import ReferentSource
from thunder_core.pytorch_internals import (
    autocast_supported_devices,
    get_nnpack_enabled,
    is_fwd_grad_enabled,
    is_multithreading_enabled,
    is_view_replay_enabled,
    profiler_enabled,
    saved_tensors_hooks_is_enabled,
)


def _autocast_dtypes() -> tuple[torch.dtype, ...]:
    """The dtypes of autocast, which it has where it is off as well."""
    return tuple([torch.get_autocast_dtype(device) for device in autocast_supported_devices()])


def _process_group() -> tuple[int, int] | None:
    """Rank and size of the default process group; None where there is none."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


_Reader = Callable[[], Any]
_FUNCTIONS: Final[dict[str, _Reader]] = {
    "torch.initial_seed": torch.initial_seed,
    "torch.get_num_threads": torch.get_num_threads,
    "torch.get_num_interop_threads": torch.get_num_interop_threads,
    "torch.is_anomaly_enabled": torch.is_anomaly_enabled,
    "torch.is_anomaly_check_nan_enabled": torch.is_anomaly_check_nan_enabled,
    "torch.is_warn_always_enabled": torch.is_warn_always_enabled,
    "torch.autograd.profiler_enabled": profiler_enabled,
    "torch.autograd.is_multithreading_enabled": is_multithreading_enabled,
    "torch.autograd.is_view_replay_enabled": is_view_replay_enabled,
    "torch.is_forward_gradient_enabled": is_fwd_grad_enabled,
    "torch.saved_tensors_hooks_are_enabled": saved_tensors_hooks_is_enabled,
    "torch.get_nnpack_enabled": get_nnpack_enabled,
    "torch.get_overwrite_module_params_on_conversion": torch.__future__.get_overwrite_module_params_on_conversion,
    "torch.get_swap_module_params_on_conversion": torch.__future__.get_swap_module_params_on_conversion,
}
"""Functions that take no arguments, which read themselves, by name."""
_OF_ARGUMENTS: Final[tuple[tuple[str, _Reader, str], ...]] = (
    ("torch", _autocast_dtypes, "get_autocast_dtype get_autocast_cpu_dtype get_autocast_gpu_dtype"),
    ("torch.distributed", _process_group, "is_initialized get_rank get_world_size"),
)
"""Module, reader of all that its functions tell, and their names."""


def _readers() -> dict[int, tuple[str, _Reader]]:
    readers = {id(function): (name, function) for name, function in _FUNCTIONS.items()}
    for module, reader, functions in _OF_ARGUMENTS:
        for name in functions.split():
            function = getattr(sys.modules[module], name, None)
            if function is not None:
                readers[id(function)] = (reader.__name__.lstrip("_"), reader)
    return readers


_by_id: Final = _readers()


def state_guard(value: Any) -> Check | None:
    """The check of what the function ``value`` tells now; None for all other objects."""
    found = _by_id.get(id(value))
    if found is None:
        return None
    name, reader = found
    return Check(ReferentSource(ConstantSource(reader, name)), VALUE, reader())
