"""The state of PyTorch in which compiled programs run, whatever modes their caller has enabled.

Traces contain the casts of autocast as ops, and devices and dtypes as arguments. The prologue checks the modes of a
call before the forward program runs. The backward program runs when ``loss.backward()`` is called, perhaps under other
modes: under autocast its matmuls would return another dtype than the regions after them were compiled for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.checks.global_state import autocast_state
from thunder_core.ir.switches import Values, read_switches, set_switches
from thunder_core.pytorch_internals import (
    get_deterministic_algorithms,
    get_deterministic_algorithms_warn_only,
    get_float32_matmul_precision,
    is_any_autocast_enabled,
    len_torch_dispatch_stack,
    len_torch_function_stack,
    pop_torch_dispatch_stack,
    pop_torch_function_stack,
)
from thunder_core.tracing.tracebacks import free_frames

_UNCHANGED: Final = nullcontext()


def own_state(default_dtype: torch.dtype) -> AbstractContextManager[None]:
    """A context without autocast, with this default dtype.

    Torch-function modes need no care: PyTorch disables them where they handle the call that starts backward.
    """
    if is_any_autocast_enabled() or torch.get_default_dtype() is not default_dtype:
        return _OwnState(default_dtype)
    return _UNCHANGED


class _OwnState:
    """The context of `own_state`.

    Unlike `torch.autocast` it is not a region, so PyTorch's cache of cast weights, which belongs to the caller, stays.
    No generator: one that an exception of a signal handler leaves suspended restores the state whenever it is freed.
    """

    def __init__(self, default_dtype: torch.dtype) -> None:
        self._default_dtype = default_dtype
        self._before = torch.get_default_dtype()
        self._autocast = [kind for kind, _ in autocast_state()]

    def __enter__(self) -> None:
        self._set(False, self._default_dtype)

    def __exit__(self, *error: object) -> None:
        self._set(True, self._before)

    def _set(self, autocast: bool, default_dtype: torch.dtype) -> None:
        for kind in self._autocast:
            torch.set_autocast_enabled(kind, autocast)
        torch.set_default_dtype(default_dtype)


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of positional arguments that calls ``function`` with autocast disabled."""

    def run(*args: Any) -> Any:
        with _OwnState(torch.get_default_dtype()):
            return function(*args)

    return run


@dataclass(frozen=True, slots=True)
class StateBefore:
    """PyTorch's modes before a compilation.

    An exception of a signal handler may be raised within a context manager, which then does not restore its mode.
    """

    switches: Values
    function_modes: int
    dispatch_modes: int

    @classmethod
    def current(cls) -> StateBefore:
        """The modes of the calling thread, in which no program is recorded."""
        return cls(read_switches(), len_torch_function_stack(), len_torch_dispatch_stack())

    def restore(self, error: BaseException) -> None:
        """Restore them after an exception of the compilation."""
        free_frames(error)
        while len_torch_dispatch_stack() > self.dispatch_modes:
            pop_torch_dispatch_stack(None)
        while len_torch_function_stack() > self.function_modes:
            pop_torch_function_stack()
        set_switches(self.switches)


def kernel_settings() -> tuple[Any, ...]:
    """PyTorch's settings on which the code of fused regions depends and that may change before backward runs."""
    return (
        get_float32_matmul_precision(),
        get_deterministic_algorithms(),
        get_deterministic_algorithms_warn_only(),
    )
