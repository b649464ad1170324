"""PyTorch's global switches that a program may change, with the getter and setter of each.

They are read before each recorded call; for speed most getters are C functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import (
    get_cublas_allow_tf32,
    get_cudnn_allow_tf32,
    get_cudnn_benchmark,
    get_cudnn_deterministic,
    get_cudnn_enabled,
    get_cudnn_sdp_enabled,
    get_deterministic_algorithms,
    get_deterministic_algorithms_warn_only,
    get_deterministic_fill_uninitialized_memory,
    get_flash_sdp_enabled,
    get_float32_matmul_precision,
    get_math_sdp_enabled,
    get_mem_efficient_sdp_enabled,
    get_mkldnn_enabled,
    set_grad_enabled,
)


@dataclass(frozen=True, slots=True)
class Switch:
    """A global mode, flag or number of PyTorch.

    Attributes:
        name: its name in traces.
        get, set: its getter, and a setter that takes the getter's result.
        of_ops: whether the `Context` of each op records it.
        guard: the name of the guard that compares it before a cached program runs; empty if no program depends on it.
    """

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], Any]
    of_ops: bool = False
    guard: str = ""


def set_switch(name: str, value: Any) -> None:
    """Set the switch of that name; traces call it."""
    _BY_NAME[name].set(value)


def _autocast(kind: str) -> tuple[Switch, Switch]:
    return (
        Switch(
            f"autocast of {kind}",
            lambda: torch.is_autocast_enabled(kind),
            lambda value: torch.set_autocast_enabled(kind, value),
            of_ops=True,
        ),
        Switch(
            f"autocast dtype of {kind}",
            lambda: torch.get_autocast_dtype(kind),
            lambda value: torch.set_autocast_dtype(kind, value),
            of_ops=True,
        ),
    )


def _autocast_nesting() -> int:
    try:
        torch.autocast_increment_nesting()
    finally:  # a signal handler may raise in between
        level = int(torch.autocast_decrement_nesting())
    return level


def _set_autocast_nesting(level: int) -> None:
    while _autocast_nesting() < level:
        torch.autocast_increment_nesting()
    while _autocast_nesting() > level:
        torch.autocast_decrement_nesting()


def _cudnn(option: str, get: Callable[[], bool], guard: str = "") -> Switch:
    """A switch for an option of `torch.backends.cudnn.set_flags`, which works even if the flags are frozen."""
    return Switch(
        f"cuDNN {option}", get, lambda value: torch.backends.cudnn.set_flags(**{f"_{option}": value}), guard=guard
    )


def _set_fill_uninitialized_memory(value: bool) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = value  # type: ignore[attr-defined]


def _set_cublas_tf32(value: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = value


THREADS_OF_BACKWARD: Final = "threads of backward"

SWITCHES: Final = (
    Switch("grad mode", torch.is_grad_enabled, set_grad_enabled, of_ops=True, guard="grad_enabled"),
    *_autocast("cpu"),
    *_autocast("cuda"),
    Switch(
        "autocast cache",
        torch.is_autocast_cache_enabled,
        torch.set_autocast_cache_enabled,
        of_ops=True,
        guard="autocast_cache",
    ),
    Switch("autocast nesting", _autocast_nesting, _set_autocast_nesting, of_ops=True),
    Switch(
        "flash attention", get_flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, of_ops=True, guard="flash_sdp"
    ),
    Switch(
        "efficient attention",
        get_mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
        of_ops=True,
        guard="mem_efficient_sdp",
    ),
    Switch("math attention", get_math_sdp_enabled, torch.backends.cuda.enable_math_sdp, of_ops=True, guard="math_sdp"),
    Switch(
        "cuDNN attention", get_cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp, of_ops=True, guard="cudnn_sdp"
    ),
    Switch("default dtype", torch.get_default_dtype, torch.set_default_dtype, guard="default_dtype"),
    Switch(
        "deterministic algorithms",
        get_deterministic_algorithms,
        lambda value: torch.use_deterministic_algorithms(value, warn_only=get_deterministic_algorithms_warn_only()),
        guard="deterministic",
    ),
    Switch(
        "deterministic algorithms, warnings only",
        get_deterministic_algorithms_warn_only,
        lambda value: torch.use_deterministic_algorithms(get_deterministic_algorithms(), warn_only=value),
        guard="deterministic_warn_only",
    ),
    Switch(
        "filling of uninitialized memory",
        get_deterministic_fill_uninitialized_memory,
        _set_fill_uninitialized_memory,
        guard="fill_uninitialized_memory",
    ),
    Switch(
        "float32 matmul precision",
        get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        guard="matmul_precision",
    ),
    Switch(
        "anomaly mode",
        torch.is_anomaly_enabled,
        lambda value: torch.set_anomaly_enabled(value, torch.is_anomaly_check_nan_enabled()),
    ),
    Switch(
        "anomaly mode's check for NaN",
        torch.is_anomaly_check_nan_enabled,
        lambda value: torch.set_anomaly_enabled(torch.is_anomaly_enabled(), value),
    ),
    Switch(
        "attention fast path",
        torch.backends.mha.get_fastpath_enabled,
        torch.backends.mha.set_fastpath_enabled,
        guard="attention_fast_path",
    ),
    Switch("threads", torch.get_num_threads, torch.set_num_threads),
    Switch("cuBLAS TF32", get_cublas_allow_tf32, _set_cublas_tf32, guard="cublas_tf32"),
    _cudnn("allow_tf32", get_cudnn_allow_tf32, guard="cudnn_tf32"),
    _cudnn("enabled", get_cudnn_enabled),
    _cudnn("benchmark", get_cudnn_benchmark),
    _cudnn("deterministic", get_cudnn_deterministic),
    Switch("oneDNN", get_mkldnn_enabled, lambda value: torch.backends.mkldnn.set_flags(_enabled=value)),
    Switch("warnings at each occurrence", torch.is_warn_always_enabled, torch.set_warn_always),
    Switch(
        "new parameters for converted modules",
        torch.__future__.get_overwrite_module_params_on_conversion,
        torch.__future__.set_overwrite_module_params_on_conversion,
    ),
    Switch(
        "swapped parameters for converted modules",
        torch.__future__.get_swap_module_params_on_conversion,
        torch.__future__.set_swap_module_params_on_conversion,
    ),
    Switch(THREADS_OF_BACKWARD, torch.autograd.is_multithreading_enabled, torch.autograd.set_multithreading_enabled),
)
_BY_NAME: Final = {switch.name: switch for switch in SWITCHES}
_OF_OPS: Final = tuple([switch for switch in SWITCHES if switch.of_ops])
_BETWEEN_OPS: Final = tuple([switch for switch in SWITCHES if not switch.of_ops])

_READERS_BETWEEN_OPS: Final = tuple([switch.get for switch in _BETWEEN_OPS])

Values = dict[str, Any]


def read_switches() -> Values:
    """The values of all switches, by name."""
    return {switch.name: switch.get() for switch in SWITCHES}


def set_switches(values: Values) -> None:
    """Set the switches whose values differ from ``values``, a result of `read_switches`."""
    for switch in SWITCHES:
        if switch.get() != values[switch.name]:
            switch.set(values[switch.name])


def read_between_ops() -> list[Any]:
    """The values of the switches that no op's context records, in order; read before each recorded call."""
    return [read() for read in _READERS_BETWEEN_OPS]


def index_between_ops(name: str) -> int:
    """The index of a switch in a result of `read_between_ops`."""
    return [switch.name for switch in _BETWEEN_OPS].index(name)


def set_between_ops(values: list[Any]) -> None:
    """Set these switches to a result of `read_between_ops`."""
    _set(_BETWEEN_OPS, values)


def read_of_ops() -> list[Any]:
    """The values of the switches that the context of each op records, in order."""
    return [switch.get() for switch in _OF_OPS]


def set_of_ops(values: list[Any]) -> None:
    """Set these switches to a result of `read_of_ops`."""
    _set(_OF_OPS, values)


def _set(switches: tuple[Switch, ...], values: list[Any]) -> None:
    for switch, value in zip(switches, values, strict=True):
        if switch.get() != value:
            switch.set(value)


def changes_between_ops(before: list[Any], after: list[Any]) -> Values:
    """The switches whose values differ between two results of `read_between_ops`, with their new values."""
    values = zip(_BETWEEN_OPS, before, after, strict=True)
    return {switch.name: new for switch, old, new in values if old != new}
