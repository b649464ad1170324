"""Selection of the kernel for a call, with reasons why preferred kernels are not selected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch
from torch.backends import cuda

from thunder_core.ir.context import attention_kernels
from thunder_plugin_sdpa.backends import BACKENDS, Backend
from thunder_plugin_sdpa.call import Call
from thunder_plugin_sdpa.conditions import not_empty

MATH: Final = "math"


@dataclass(frozen=True, slots=True)
class Choice:
    """The selection for one call.

    Attributes:
        name: name of the kernel; ``math`` for the formula in PyTorch operations, None if no kernel is supported.
        backend: its row; None for the formula.
        passed: preferred kernels with the reasons why they do not support the call.
    """

    name: str | None
    backend: Backend | None
    passed: tuple[tuple[str, str], ...]

    @property
    def reasons(self) -> str:
        """All reasons, without duplicates."""
        names: dict[str, list[str]] = {}
        for name, reason in self.passed:
            names.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(kernels)}: {reason}" for reason, kernels in names.items())


def choose(call: Call, order: Sequence[str]) -> Choice:
    """The first of ``order`` that supports the call. Cached by the call and by PyTorch's flags for attention."""
    return _choose(call.anonymous(), tuple(order), _flags())


def _flags() -> tuple[object, ...]:
    """Global settings of users, which compiled programs guard."""
    return (
        *attention_kernels(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


@lru_cache(maxsize=1024)
def _choose(call: Call, order: tuple[str, ...], flags: tuple[object, ...]) -> Choice:
    passed: list[tuple[str, str]] = []
    for name in order:
        if name == MATH:
            reason = _refusal_of_math(call)
            if reason is None:
                return Choice(MATH, None, tuple(passed))
            passed.append((name, reason))
            continue
        backend = _row(name, call.query.device.type)
        reason = backend.refusal(call)
        if reason is None:
            return Choice(name, backend, tuple(passed))
        passed.append((name, reason))
    return Choice(None, None, tuple(passed))


def _row(name: str, device: str) -> Backend:
    """The row of the kernel for the device; if there is none, the row for another device, which declines the call."""
    rows = [backend for backend in BACKENDS if backend.name == name]
    return next((backend for backend in rows if backend.device == device), rows[0])


def _refusal_of_math(call: Call) -> str | None:
    """Declines the formula if no kernel supports the call, which PyTorch then computes by the formula itself. For empty
    tensors on a GPU it chooses a kernel.
    """
    if not cuda.math_sdp_enabled():
        return "the formula is disabled by sdpa_kernel or torch.backends.cuda"
    taken = call.query.device.type == "cuda" and not_empty(call) is not None
    if not taken and all(backend.refusal(call) is not None for backend in BACKENDS):
        return "PyTorch chooses the formula for this call by itself; its parts are left to other executors"
    return None
