"""Builders of elementwise rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.promotion import COMPARISON, WIDEST, computation_dtype
from thunder_plugin_nvfuser.pytorch_internals import PROMOTION

Build = Callable[..., Any]


def elementwise(operation: str, rule: PROMOTION, boolean: str = "") -> Build:
    """One operation of nvFuser, in the dtype of the promotion rule; ``boolean`` is the operation for bools."""

    def build(d: Definition, *operands: Any) -> Value:
        dtype = computation_dtype(operands, rule)
        return d.compute(boolean if boolean and dtype is torch.bool else operation, *operands, dtype=dtype)

    return build


def comparison(operation: str) -> Build:
    """A comparison. Bools are compared as integers."""

    def build(d: Definition, *operands: Any) -> Value:
        dtype = computation_dtype(operands, COMPARISON)
        dtype = torch.int32 if dtype is torch.bool else dtype
        return d.compute(operation, *operands, dtype=dtype, gives=torch.bool)

    return build


def logical(operation: str) -> Build:
    """A logical operation."""

    def build(d: Definition, *operands: Any) -> Value:
        return d.compute(operation, *operands, dtype=torch.bool)

    return build


def rounding(operation: str) -> Build:
    """An operation that returns integers unchanged."""

    def build(d: Definition, x: Value) -> Value:
        return d.compute(operation, x, dtype=computation_dtype([x], WIDEST)) if x.dtype.is_floating_point else x

    return build


def not_boolean(*operands: Any, **options: Any) -> str | None:
    """Declines bools: PyTorch rejects some of them, or has special rules."""
    dtypes = [operand.dtype for operand in operands if hasattr(operand, "dtype")]
    return "it computes with bools" if all(dtype is torch.bool for dtype in dtypes) else None
