"""Checks that run with the program, for what could not be known while it was recorded."""

from __future__ import annotations

import torch

from thunder_core.errors import DataDependentError
from thunder_core.ir.symbol import Symbol


def check_metadata(tensor: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> None:
    """Check that a tensor has the metadata that the rest of the program was recorded with.

    Follows a call whose metadata could depend on values but did not when it was tried on sample values.

    Raises:
        DataDependentError: it has other metadata this time.
    """
    if tuple(tensor.shape) == shape and tensor.dtype is dtype and (tensor.stride() == stride or tensor.numel() == 0):
        return
    raise DataDependentError(
        f"the program was recorded with a result of shape {shape}, strides {stride} and {dtype} here, and this time "
        f"it has shape {tuple(tensor.shape)}, strides {tensor.stride()} and {tensor.dtype}: it depends on values",
        advice=("run this operation outside of the compiled function",),
    )


def check_true(condition: torch.Tensor | bool, message: object) -> None:
    """``torch._assert`` of a condition that depends on values.

    Raises:
        AssertionError: it is false.
    """
    if not condition:
        raise AssertionError(message)


CHECK_TRUE = Symbol("thunder_core.symbols.checks.check_true", check_true)
CHECK_METADATA = Symbol("thunder_core.symbols.checks.check_metadata", check_metadata)
