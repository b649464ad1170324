"""PyTorch's switches that a program may leave changed: how each is read and set.

They are read before each call that is recorded, so that most are read by a function of C.
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
    """A mode, flag or number of PyTorch's.

    Attributes:
        name: for lines of traces.
        get, set: read it, and set it to what was read.
        of_lines: the lines of a trace say by themselves what it was (`Context`).
        guard: the name of the guard that compares it before an entry is used; empty where it changes no program.
    """

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], Any]
    of_lines: bool = False
    guard: str = ""


def set_switch(name: str, value: Any) -> None:
    """Set the switch of that name, as a line of a trace."""
    _BY_NAME[name].set(value)


def _autocast(kind: str) -> tuple[Switch, Switch]:
    return (
        Switch(
            f"autocast of {kind}",
            lambda: torch.is_autocast_enabled(kind),
            lambda value: torch.set_autocast_enabled(kind, value),
            of_lines=True,
        ),
        Switch(
            f"autocast dtype of {kind}",
            lambda: torch.get_autocast_dtype(kind),
            lambda value: torch.set_autocast_dtype(kind, value),
            of_lines=True,
        ),
    )


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def _set_autocast_nesting(level: int) -> None:
    while _autocast_nesting() < level:
        torch.autocast_increment_nesting()
    while _autocast_nesting() > level:
        torch.autocast_decrement_nesting()


def _cudnn(option: str, get: Callable[[], bool], guard: str = "") -> Switch:
    """One of the options of `torch.backends.cudnn.set_flags`, which sets them also where they are frozen."""
    return Switch(
        f"cuDNN {option}", get, lambda value: torch.backends.cudnn.set_flags(**{f"_{option}": value}), guard=guard
    )


def _set_fill_uninitialized_memory(value: bool) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = value  # type: ignore[attr-defined]


def _set_cublas_tf32(value: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = value


SWITCHES: Final = (
    Switch("grad mode", torch.is_grad_enabled, set_grad_enabled, of_lines=True, guard="grad_enabled"),
    *_autocast("cpu"),
    *_autocast("cuda"),
    Switch(
        "autocast cache",
        torch.is_autocast_cache_enabled,
        torch.set_autocast_cache_enabled,
        of_lines=True,
        guard="autocast_cache",
    ),
    Switch("autocast nesting", _autocast_nesting, _set_autocast_nesting, of_lines=True),
    Switch(
        "flash attention", get_flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp, of_lines=True, guard="flash_sdp"
    ),
    Switch(
        "efficient attention",
        get_mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
        of_lines=True,
        guard="mem_efficient_sdp",
    ),
    Switch(
        "math attention", get_math_sdp_enabled, torch.backends.cuda.enable_math_sdp, of_lines=True, guard="math_sdp"
    ),
    Switch(
        "cuDNN attention", get_cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp, of_lines=True, guard="cudnn_sdp"
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
    Switch("threads of backward", torch.autograd.is_multithreading_enabled, torch.autograd.set_multithreading_enabled),
)
_BY_NAME: Final = {switch.name: switch for switch in SWITCHES}
_BETWEEN_LINES: Final = tuple([switch for switch in SWITCHES if not switch.of_lines])

_READERS_BETWEEN_LINES: Final = tuple([switch.get for switch in _BETWEEN_LINES])

Values = dict[str, Any]


def read_switches() -> Values:
    """All of them, by name."""
    return {switch.name: switch.get() for switch in SWITCHES}


def set_switches(values: Values) -> None:
    """Set those that differ from what `read_switches` gave."""
    for switch in SWITCHES:
        if switch.get() != values[switch.name]:
            switch.set(values[switch.name])


def read_between_lines() -> list[Any]:
    """The values of the switches that no line records, in order; read before each recorded call."""
    return [read() for read in _READERS_BETWEEN_LINES]


def changes_between_lines(before: list[Any], after: list[Any]) -> Values:
    """Those of them that differ, with their new values."""
    values = zip(_BETWEEN_LINES, before, after, strict=True)
    return {switch.name: new for switch, old, new in values if old != new}
