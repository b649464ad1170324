"""PyTorch's modes and flags that decide what a program means, or how its operations run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as _module

from thunder_core.guards.source import Names
from thunder_core.pytorch_internals import (
    autocast_supported_devices,
    current_level,
    get_cublas_allow_tf32,
    get_cudnn_allow_tf32,
    get_cudnn_sdp_enabled,
    get_deterministic_algorithms,
    get_deterministic_algorithms_warn_only,
    get_flash_sdp_enabled,
    get_float32_matmul_precision,
    get_function_stack_at,
    get_math_sdp_enabled,
    get_mem_efficient_sdp_enabled,
    is_any_autocast_enabled,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    peek_interpreter_stack,
)

_NO_LEVEL: Final = -1  # of forward-mode differentiation
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


@dataclass(frozen=True, slots=True)
class GlobalState:
    """One reading of the modes and flags, for the calling thread."""

    grad_enabled: bool
    inference_mode: bool
    autocast: tuple[tuple[str, torch.dtype], ...]
    autocast_cache: bool
    default_dtype: torch.dtype
    default_device: torch.device
    function_modes: int
    dispatch_modes: int
    functorch_level: int
    dual_level: int
    deterministic: bool
    deterministic_warn_only: bool
    fill_uninitialized_memory: bool
    matmul_precision: str
    cublas_tf32: bool
    cudnn_tf32: bool
    sdpa_backends: tuple[bool, ...]
    attention_fast_path: bool
    module_hooks: tuple[int, ...]

    @classmethod
    def current(cls) -> GlobalState:
        """What holds now."""
        return cls(
            grad_enabled=torch.is_grad_enabled(),
            inference_mode=torch.is_inference_mode_enabled(),
            autocast=autocast_state(),
            autocast_cache=torch.is_autocast_cache_enabled(),
            default_dtype=torch.get_default_dtype(),
            default_device=torch.get_default_device(),
            function_modes=len_torch_function_stack(),
            dispatch_modes=len_torch_dispatch_stack(),
            functorch_level=functorch_level(),
            dual_level=current_level.value,
            deterministic=get_deterministic_algorithms(),
            deterministic_warn_only=get_deterministic_algorithms_warn_only(),
            fill_uninitialized_memory=torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
            matmul_precision=get_float32_matmul_precision(),
            cublas_tf32=get_cublas_allow_tf32(),
            cudnn_tf32=get_cudnn_allow_tf32(),
            sdpa_backends=sdpa_backends(),
            attention_fast_path=torch.backends.mha.get_fastpath_enabled(),
            module_hooks=global_module_hooks(),
        )

    def differences(self, other: GlobalState) -> list[str]:
        """``torch grad_enabled: expected True, got False`` for each field of ``other`` that differs."""
        return [
            f"torch {field.name}: expected {getattr(self, field.name)}, got {getattr(other, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]

    def bypass_reason(self) -> str | None:
        """Why a program must not be compiled under these modes; None when it may."""
        modes = [get_function_stack_at(index) for index in range(len_torch_function_stack())]
        for mode in modes:
            if not is_device_context(mode):
                return f"a torch function mode is active ({type(mode).__qualname__})"
        if len_torch_dispatch_stack():
            return f"{len_torch_dispatch_stack()} torch dispatch mode(s) are active"
        if self.dual_level != _NO_LEVEL:
            return "forward-mode differentiation is active"
        return None


def autocast_state() -> tuple[tuple[str, torch.dtype], ...]:
    """Device type and element type of each autocast that is on."""
    if not is_any_autocast_enabled():
        return ()
    devices = autocast_supported_devices()
    return tuple((device, torch.get_autocast_dtype(device)) for device in devices if torch.is_autocast_enabled(device))


def functorch_level() -> int:
    """How many functorch transforms (``vmap``, ``grad``) the thread is in."""
    interpreter = peek_interpreter_stack()
    return 0 if interpreter is None else int(interpreter.level())


def sdpa_backends() -> tuple[bool, ...]:
    """Which implementations scaled_dot_product_attention may choose: flash, efficient, math, cuDNN."""
    return (
        get_flash_sdp_enabled(),
        get_mem_efficient_sdp_enabled(),
        get_math_sdp_enabled(),
        get_cudnn_sdp_enabled(),
    )


def global_module_hooks() -> tuple[int, ...]:
    """Identities of the hooks that run for every module."""
    return tuple(id(hook) for name in _GLOBAL_HOOKS for hook in getattr(_module, name).values())


def is_device_context(mode: Any) -> bool:
    """True for the mode through which PyTorch implements default devices."""
    from thunder_core.pytorch_internals import DeviceContext

    return isinstance(mode, DeviceContext)


# How each field is read in generated code: a prefix of an expression that is compared with the expected value.
_BOOLEANS: dict[str, tuple[str, Any]] = {
    "grad_enabled": ("is_grad_enabled", torch.is_grad_enabled),
    "inference_mode": ("is_inference_mode_enabled", torch.is_inference_mode_enabled),
    "autocast_cache": ("is_autocast_cache_enabled", torch.is_autocast_cache_enabled),
    "deterministic": ("are_deterministic_algorithms_enabled", get_deterministic_algorithms),
    "deterministic_warn_only": (
        "is_deterministic_warn_only_enabled",
        get_deterministic_algorithms_warn_only,
    ),
    "cublas_tf32": ("cublas_allow_tf32", get_cublas_allow_tf32),
    "cudnn_tf32": ("cudnn_allow_tf32", get_cudnn_allow_tf32),
}
_COUNTS: dict[str, tuple[str, Any]] = {
    "function_modes": ("torch_function_modes", len_torch_function_stack),
    "dispatch_modes": ("torch_dispatch_modes", len_torch_dispatch_stack),
}
_SDPA: tuple[tuple[str, Any], ...] = (
    ("flash_sdp_enabled", get_flash_sdp_enabled),
    ("mem_efficient_sdp_enabled", get_mem_efficient_sdp_enabled),
    ("math_sdp_enabled", get_math_sdp_enabled),
    ("cudnn_sdp_enabled", get_cudnn_sdp_enabled),
)


def always_checked(state: GlobalState, names: Names) -> list[str]:
    """Conditions, true when a mode differs, that PyTorch's own combined check does not cover."""
    conditions = [
        _boolean(state.inference_mode, names.constant(*_flip(_BOOLEANS["inference_mode"]))),
        *(
            f"{names.constant(*_flip(_COUNTS[name]))}()" + (f" != {count}" if (count := getattr(state, name)) else "")
            for name in _COUNTS
        ),
    ]
    if state.functorch_level:
        conditions.append(f"{names.constant(functorch_level, 'functorch_level')}() != {state.functorch_level}")
    else:
        peek = names.constant(peek_interpreter_stack, "peek_interpreter_stack")
        conditions.append(f"{peek}() is not None")
    conditions.append(f"{names.constant(forward_ad, 'forward_ad')}._current_level != {state.dual_level}")
    conditions.extend(
        _boolean(expected, names.constant(function, name))
        for expected, (name, function) in zip(state.sdpa_backends, _SDPA, strict=True)
    )
    fast_path = f"{names.constant(torch.backends.mha, 'mha')}._is_fastpath_enabled"
    conditions.append(f"not {fast_path}" if state.attention_fast_path else fast_path)
    if state.function_modes:
        device = names.constant(state.default_device, "default_device")
        conditions.append(f"{names.constant(torch.get_default_device, 'get_default_device')}() != {device}")
    if state.deterministic:
        module = names.constant(torch.utils.deterministic, "deterministic")
        conditions.append(f"{module}.fill_uninitialized_memory is not {state.fill_uninitialized_memory}")
    if state.module_hooks:
        hooks = names.constant(global_module_hooks, "global_module_hooks")
        conditions.append(f"{hooks}() != {state.module_hooks!r}")
    else:
        conditions.extend(names.constant(getattr(_module, name), name.strip("_")) for name in _GLOBAL_HOOKS)
    return conditions


def remaining(state: GlobalState, names: Names) -> list[str]:
    """Conditions, true when a mode differs, for everything else."""
    conditions = [
        _boolean(getattr(state, name), names.constant(*_flip(_BOOLEANS[name])))
        for name in _BOOLEANS
        if name != "inference_mode"
    ]
    autocast = names.constant(autocast_state, "autocast_state")
    expected = names.constant(state.autocast, "expected_autocast") if state.autocast else "()"
    conditions.append(f"{autocast}() != {expected}")
    dtype = names.constant(state.default_dtype, str(state.default_dtype).replace("torch.", ""))
    conditions.append(f"{names.constant(torch.get_default_dtype, 'get_default_dtype')}() is not {dtype}")
    precision = names.constant(get_float32_matmul_precision, "float32_matmul_precision")
    conditions.append(f"{precision}() != {state.matmul_precision!r}")
    return conditions


def _flip(pair: tuple[str, Any]) -> tuple[Any, str]:
    return pair[1], pair[0]


def _boolean(expected: bool, function: str) -> str:
    return f"not {function}()" if expected else f"{function}()"
