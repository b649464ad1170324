"""PyTorch's modes and flags, on which the results of a program depend, and the conditions that prologues check.

If a program reads a function such as `torch.get_num_threads`, `state_guard` guards its result.
"""

from __future__ import annotations

import builtins
import contextvars
import decimal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as _module

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import VALUE, is_replaced
from thunder_core.checks.source import ConstantSource, Names, ResultSource
from thunder_core.errors import RunEagerly
from thunder_core.ir.switches import SWITCHES
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import (
    GlobalStateGuard,
    autocast_supported_devices,
    current_level,
    get_function_stack_at,
    get_nnpack_enabled,
    is_any_autocast_enabled,
    is_fwd_grad_enabled,
    is_fx_symbolic_tracing,
    is_multithreading_enabled,
    is_view_replay_enabled,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    peek_interpreter_stack,
    profiler_enabled,
    saved_tensors_hooks_is_enabled,
)

_NO_LEVEL: Final = -1  # of forward-mode differentiation
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
)


@dataclass(frozen=True, slots=True)
class GlobalState:
    """The values of the modes and flags in the calling thread at one moment, by the names of `READERS`."""

    values: Mapping[str, Any]

    @classmethod
    def current(cls) -> GlobalState:
        """The current values."""
        return cls({name: read() for name, read in READERS.items()})

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def differences(self, other: GlobalState) -> list[str]:
        """``torch grad_enabled: expected True, got False`` for each value of ``other`` that differs."""
        return [
            f"torch {name}: expected {value}, got {other[name]}"
            for name, value in self.values.items()
            if value != other[name]
        ]

    def bypass_reason(self) -> str | None:
        """Why a program cannot be compiled under these modes; None if it can."""
        modes = [get_function_stack_at(index) for index in range(len_torch_function_stack())]
        for mode in modes:
            if not _is_device_context(mode):
                return f"a torch function mode is active ({type(mode).__qualname__})"
        if len_torch_dispatch_stack():
            return f"{len_torch_dispatch_stack()} torch dispatch mode(s) are active"
        if self["dual_level"] != _NO_LEVEL:
            return "forward-mode differentiation is active"
        if is_fx_symbolic_tracing():
            return "torch.fx is tracing, and gets the calls of the original"
        return None


def autocast_state() -> tuple[tuple[str, torch.dtype], ...]:
    """Device type and dtype of each enabled autocast."""
    if not is_any_autocast_enabled():
        return ()
    devices = autocast_supported_devices()
    return tuple((device, torch.get_autocast_dtype(device)) for device in devices if torch.is_autocast_enabled(device))


def functorch_level() -> int:
    """The number of active functorch transforms (``vmap``, ``grad``)."""
    interpreter = peek_interpreter_stack()
    return 0 if interpreter is None else int(interpreter.level())


def global_module_hooks() -> tuple[int, ...]:
    """The ids of the hooks that run for every module, including registration hooks."""
    return tuple(id(hook) for name in _GLOBAL_HOOKS for hook in getattr(_module, name).values())


def copy_module_hooks() -> dict[str, Any]:
    """A copy of these hooks and their settings, for `restore_module_hooks`."""
    held = {name: value for name, value in vars(_module).items() if name.startswith("_global_")}
    return {name: dict(value) if isinstance(value, dict) else value for name, value in held.items()}


def restore_module_hooks(before: dict[str, Any]) -> None:
    """Restore the hooks and settings of `copy_module_hooks`."""
    for name, value in before.items():
        held = getattr(_module, name)
        if isinstance(held, dict) and held != value:
            held.clear()
            held.update(value)
        elif not isinstance(held, dict):
            setattr(_module, name, value)


def _is_device_context(mode: Any) -> bool:
    """Whether a torch-function mode is the one by which PyTorch implements default devices."""
    from thunder_core.pytorch_internals import DeviceContext

    return isinstance(mode, DeviceContext)


READERS: Final[Mapping[str, Callable[[], Any]]] = {
    "grad_enabled": torch.is_grad_enabled,  # first: entries differ most often in this mode
    "inference_mode": torch.is_inference_mode_enabled,
    "autocast": autocast_state,
    **{switch.guard: switch.get for switch in SWITCHES if switch.guard},
    "default_device": torch.get_default_device,
    "function_modes": len_torch_function_stack,
    "dispatch_modes": len_torch_dispatch_stack,
    "functorch_level": functorch_level,
    "dual_level": lambda: current_level.value,
    "module_hooks": global_module_hooks,
}
"""The functions that read modes and flags, by their names in messages."""
_COVERED: Final = (
    *("grad_enabled", "autocast_cache", "deterministic", "deterministic_warn_only", "cublas_tf32", "cudnn_tf32"),
    *("autocast", "default_dtype", "matmul_precision"),
)
"""The modes that PyTorch's combined check compares."""
_COMPARED: Final = (
    *("inference_mode", "function_modes", "dispatch_modes"),
    *("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp"),
)
"""Other modes that prologues compare by calling the reader; `always_checked` generates special code for the rest."""


def always_checked(state: GlobalState, names: Names) -> list[str]:
    """Conditions, true if a mode differs, for the modes that PyTorch's combined check does not compare."""
    conditions = [_differs(state, name, names) for name in _COMPARED]
    if state["functorch_level"]:
        conditions.append(_differs(state, "functorch_level", names))
    else:
        peek = names.constant(peek_interpreter_stack, "peek_interpreter_stack")
        conditions.append(f"{peek}() is not None")
    conditions.append(f"{names.constant(forward_ad, 'forward_ad')}._current_level != {state['dual_level']}")
    fast_path = f"{names.constant(torch.backends.mha, 'mha')}._is_fastpath_enabled"
    conditions.append(f"not {fast_path}" if state["attention_fast_path"] else fast_path)
    if state["function_modes"]:
        conditions.append(_differs(state, "default_device", names))
    if state["deterministic"]:
        conditions.append(_differs(state, "fill_uninitialized_memory", names))
    if state["module_hooks"]:
        conditions.append(_differs(state, "module_hooks", names))
    else:
        conditions.extend(names.constant(getattr(_module, name), name.strip("_")) for name in _GLOBAL_HOOKS)
    return conditions


def remaining(state: GlobalState, names: Names) -> list[str]:
    """Conditions, true if a mode differs, for the modes that PyTorch's combined check compares."""
    return [_differs(state, name, names) for name in _COVERED]


class ModesMemo:
    """PyTorch's combined check of the modes in `_COVERED`, as they were when a full check last passed."""

    __slots__ = ("check",)

    def __init__(self) -> None:
        self.check: Callable[[], bool] = lambda: False

    def remember(self) -> None:
        """Accept the current modes from now on. Does nothing where PyTorch has no combined check."""
        if not is_missing(GlobalStateGuard):
            self.check = GlobalStateGuard().check


def _differs(state: GlobalState, name: str, names: Names) -> str:
    """A condition that calls the reader of a mode."""
    expected, read = state[name], f"{names.constant(READERS[name], name)}()"
    if expected is True:
        return f"not {read}"
    if not expected:  # False, zero or an empty tuple
        return read
    if isinstance(expected, int | str):
        return f"{read} != {expected!r}"
    word = str(expected).removeprefix("torch.") if isinstance(expected, torch.dtype) else f"expected_{name}"
    return f"{read} != {names.constant(expected, word)}"


def _autocast_dtypes() -> tuple[torch.dtype, ...]:
    """The dtypes of autocast for all devices, enabled or not."""
    return tuple([torch.get_autocast_dtype(device) for device in autocast_supported_devices()])


def _process_group() -> tuple[int, int] | None:
    """Rank and size of the default process group; None if there is none."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


_Reader = Callable[[], Any]
OPTIONS_OF_DECIMALS: Final = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def decimal_context(context: Any = decimal) -> tuple[Any, ...]:
    """The options of a context of `decimal`, by default of the current one, without the flags that computations set."""
    if context is decimal:  # in a copy, as reading the current context may set a context variable
        context = contextvars.copy_context().run(decimal.getcontext)
    return (*[getattr(context, name) for name in OPTIONS_OF_DECIMALS], tuple(context.traps.values()))


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
"""Functions without parameters, by name; a program that reads one gets a guard on its result."""
_OF_ARGUMENTS: Final[tuple[tuple[str, _Reader, str], ...]] = (
    ("torch", _autocast_dtypes, "get_autocast_dtype get_autocast_cpu_dtype get_autocast_gpu_dtype"),
    ("torch.distributed", _process_group, "is_initialized get_rank get_world_size"),
    ("decimal", decimal_context, "Decimal getcontext localcontext"),
)
"""Module, reader of the state that functions with parameters read, and the names of these functions."""


def _readers() -> dict[int, tuple[str, _Reader]]:
    readers: dict[int, tuple[str, _Reader]] = {id(function): (name, function) for name, function in _FUNCTIONS.items()}
    readers[id(decimal)] = ("decimal_context", decimal_context)
    for module, reader, functions in _OF_ARGUMENTS:
        for name in functions.split():
            function = getattr(sys.modules[module], name, None)
            if function is not None:
                readers[id(function)] = (reader.__name__.lstrip("_"), reader)
    return readers


_by_id: Final = _readers()


def state_guard(value: Any) -> Check | None:
    """The check of the current result of such a function; None for other objects."""
    row = _by_id.get(id(value))
    if row is None:
        return None
    name, reader = row
    return Check(ResultSource(ConstantSource(reader, name)), VALUE, reader())


_BUILTINS: Final = vars(builtins)
ORIGINAL_BUILTINS: Final = dict(_BUILTINS)
"""The builtins when Thunder was imported."""
_NOT_CALLED: Final = frozenset({"print", "input", "open", "breakpoint", "help", "exit", "quit", "__import__"})
"""Builtins that libraries and scripts replace, and that neither Thunder nor PyTorch calls during a recording."""


def replaced_builtins() -> str | None:
    """The reason not to compile a program while builtins are replaced, as by `unittest.mock.patch`; None if none is.

    What replaces them would see the calls of Thunder, and would not see those of a cached program.
    """
    names = [
        name
        for name, original in ORIGINAL_BUILTINS.items()
        if is_replaced(_BUILTINS.get(name), original) and name not in _NOT_CALLED
    ]
    if not names:
        return None
    return f"builtin functions are replaced ({', '.join(names)}), which Thunder and PyTorch call as well"


def replaces_builtins(names: Iterable[str]) -> RunEagerly:
    """The reason to run a program eagerly that replaces builtins with these names."""
    return RunEagerly(
        f"the program replaces builtin functions ({', '.join(sorted(names))}), which Thunder and PyTorch call as well; "
        "replace them outside of the compiled function"
    )
