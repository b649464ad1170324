"""The state of PyTorch in which compiled programs run, whatever modes their caller has enabled.

Traces contain the casts of autocast as ops, and devices and dtypes as arguments. The prologue checks the modes of a
call before the forward program runs. The backward program runs when ``loss.backward()`` is called, perhaps under other
modes: under autocast its matmuls would return another dtype than the regions after them were compiled for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch

from thunder_core.guards.global_state import autocast_state
from thunder_core.pytorch_internals import (
    get_deterministic_algorithms,
    get_deterministic_algorithms_warn_only,
    get_float32_matmul_precision,
    is_any_autocast_enabled,
)

_UNCHANGED: Final = nullcontext()


def own_state(default_dtype: torch.dtype) -> AbstractContextManager[None]:
    """A context without autocast, with this default dtype.

    Torch-function modes need no care: PyTorch disables them where they handle the call that starts backward.
    """
    if is_any_autocast_enabled() or torch.get_default_dtype() is not default_dtype:
        return _own_state(default_dtype)
    return _UNCHANGED


@contextmanager
def _own_state(default_dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    with _without_autocast():
        try:
            torch.set_default_dtype(default_dtype)
            yield
        finally:
            torch.set_default_dtype(before)


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Autocast is disabled.

    Unlike `torch.autocast` it is not a region, so PyTorch's cache of cast weights, which belongs to the caller, stays.
    """
    kinds = [kind for kind, _ in autocast_state()]
    try:
        for kind in kinds:
            torch.set_autocast_enabled(kind, False)
        yield
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)


def without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of positional arguments that calls ``function`` with autocast disabled."""

    def run(*args: Any) -> Any:
        with _without_autocast():
            return function(*args)

    return run


def kernel_settings() -> tuple[Any, ...]:
    """PyTorch's settings on which the code of fused regions depends and that may change before backward runs."""
    return (
        get_float32_matmul_precision(),
        get_deterministic_algorithms(),
        get_deterministic_algorithms_warn_only(),
    )
