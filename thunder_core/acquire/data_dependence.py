"""Calls whose result needs values that do not exist while a program is recorded, and errors of calls on fakes."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import _disable_current_modes

from thunder_core.acquire.variable import Variable
from thunder_core.errors import DataDependentError, UnsupportedError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves


class ValueNeeded(Exception):
    """Raised in place of running a call that reads a tensor's values."""


EXCEPTIONS = (DataDependentOutputException, DynamicOutputShapeException, ValueNeeded)

ADVICE = (
    "choose between tensors with torch.where, or between programs with torch.cond",
    "keep fixed shapes: multiply by the mask, or use torch.topk / nonzero_static with a fixed size",
    "compute the value outside the compiled function and pass it as a Python argument",
    "compile the parts before and after this line separately (the dynamo front end will do this by itself)",
)


def error(symbol: Symbol, variables: Sequence[Variable], location: SourceLocation | None) -> DataDependentError:
    """The error that names the call, the tensor and the ways out."""
    described = ", ".join(f"{variable.proxy.name}" for variable in variables) or "its arguments"
    return DataDependentError(
        f"{symbol.name} needs the value of {described}, which depends on the program's inputs "
        "and is not known while the program is recorded",
        location=location,
        advice=ADVICE,
    )


_MATERIALIZE_LIMIT = 1 << 26  # bytes


def as_eager_raises(symbol: Symbol, args: Any, kwargs: Any, raised: Exception) -> Exception:
    """The exception that eager raises for a call that failed on fakes.

    Meta kernels word some errors differently, so a small call to a PyTorch function is tried on zeros.
    """
    if isinstance(raised, UnsupportedFakeTensorException | UnsupportedOperatorException):
        return UnsupportedError(
            f"PyTorch cannot tell the metadata of {symbol.name} without running it: {raised}",
            advice=("register a fake implementation with torch.library.register_fake",),
        )
    module = getattr(symbol.target, "__module__", None) or "torch"
    if not module.startswith("torch") or not is_small(args, kwargs):
        return raised
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        real_args, real_kwargs = map_leaves(_zeros, args), map_leaves(_zeros, kwargs)
        try:
            symbol.target(*real_args, **real_kwargs)
        except Exception as eager:
            return eager.with_traceback(None)
    return raised


def is_small(args: Any, kwargs: Any) -> bool:
    """Whether a call on fakes may be tried on real tensors: on the CPU, and of limited size."""
    tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
    return all(t.device.type == "cpu" for t in tensors) and (
        builtins.sum(t.untyped_storage().nbytes() for t in tensors) < _MATERIALIZE_LIMIT
    )


def _zeros(leaf: Any) -> Any:
    if not isinstance(leaf, FakeTensor):
        return leaf
    size = leaf.untyped_storage().nbytes() // leaf.element_size()
    real = torch.zeros(size, dtype=leaf.dtype).as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())
    return real.requires_grad_(leaf.requires_grad)
