"""Which kernel takes a call, and why those before it do not."""

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
    """The answer to one call.

    Attributes:
        name: the kernel's; ``math`` for the formula in PyTorch operations, None if nothing fits.
        backend: its row; None for the formula.
        passed: those that are preferred, with the reasons for which they do not take the call.
    """

    name: str | None
    backend: Backend | None
    passed: tuple[tuple[str, str], ...]

    @property
    def reasons(self) -> str:
        """All of them; equal ones once."""
        names: dict[str, list[str]] = {}
        for name, reason in self.passed:
            names.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(own)}: {reason}" for reason, own in names.items())


def choose(call: Call, order: Sequence[str]) -> Choice:
    """The first of ``order`` that takes the call. Kept by the call and by the flags that are asked."""
    return _choose(call.anonymous(), tuple(order), _flags())


def _flags() -> tuple[object, ...]:
    """What users switch; guards of compiled programs check the same."""
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
    """The kernel of that name for the device; for another one, which then says so, if there is none for it."""
    rows = [backend for backend in BACKENDS if backend.name == name]
    return next((backend for backend in rows if backend.device == device), rows[0])


def _refusal_of_math(call: Call) -> str | None:
    """The formula has to be asked for only where PyTorch would take a kernel, as it does for empty tensors on a GPU."""
    if not cuda.math_sdp_enabled():
        return "the formula is switched off, by sdpa_kernel or torch.backends.cuda"
    taken = call.query.device.type == "cuda" and not_empty(call) is not None
    if not taken and all(backend.refusal(call) is not None for backend in BACKENDS):
        return "PyTorch takes the formula for this call by itself; its parts are left to other executors"
    return None
