"""Shortcuts of a prologue: PyTorch's own combined checks stand for many Python ones while nothing has changed.

Each is created from a state that the full check has accepted, and accepts nothing but that state; when it says no, the
full check decides. Where a PyTorch lacks them the full check runs in each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder_core.guards.tensor_guard import TensorGuard
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import GlobalStateGuard, TensorGuards


def _unknown(*_: Any) -> bool:
    return False


class ModesMemo:
    """Remembers the thread's modes: gradients, autocast, default dtype, determinism, tf32."""

    __slots__ = ("check",)

    def __init__(self) -> None:
        self.check: Callable[[], bool] = _unknown

    def remember(self) -> None:
        """What holds now is right."""
        if not is_missing(GlobalStateGuard):
            self.check = GlobalStateGuard().check


@functools.cache
def sees_requires_grad() -> bool:
    """Whether the combined check of tensors looks at ``requires_grad`` while gradients are off; not in all versions."""
    if is_missing(TensorGuards):
        return True
    with torch.no_grad():
        tensor = torch.empty(1, requires_grad=True)
        check = TensorGuards(tensor, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return not check(tensor.requires_grad_(False))


class TensorsMemo:
    """Remembers class, shape, strides, dtype, device, requires_grad and lazy bits of some tensors, not the tensors."""

    __slots__ = ("_guards", "_varies", "check")

    def __init__(self, guards: Sequence[TensorGuard]) -> None:
        self._guards = guards
        self._varies = any(guard.varies for guard in guards)
        self.check: Callable[..., bool] = _unknown

    def recheck(self, *tensors: torch.Tensor) -> bool:
        """The full check of each tensor; remembers those that pass."""
        for guard, tensor in zip(self._guards, tensors, strict=True):
            if not guard.holds(tensor):
                return False
        self.remember(*tensors)
        return True

    def remember(self, *tensors: torch.Tensor) -> None:
        """These tensors are right. Not all can be remembered: the combined check refuses repeated objects."""
        if is_missing(TensorGuards) or len({id(tensor) for tensor in tensors}) < len(tensors):
            return
        if any(tensor.layout is not torch.strided for tensor in tensors):
            return
        if not self._varies:
            self.check = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
            return
        sizes = [guard.constant_sizes() for guard in self._guards]
        pairs = zip(tensors, self._guards, strict=True)
        strides = [[None] * tensor.ndim if guard.varies else list(tensor.stride()) for tensor, guard in pairs]
        self.check = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
