"""The dtypes that NumPy and PyTorch have in common, in both forms, and NumPy's promotion."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from thunder_plugin_numpy.coverage import not_covered

_NAMES: Final = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
TORCH: Final[dict[np.dtype[Any], torch.dtype]] = {np.dtype(name): getattr(torch, name) for name in _NAMES}
"""PyTorch's dtypes by NumPy's."""
NUMPY: Final = {dtype: of_numpy for of_numpy, dtype in TORCH.items()}
"""NumPy's dtypes by PyTorch's."""


def is_covered(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of a dtype can be compiled: the byte order is the machine's, and PyTorch computes with it."""
    return dtype in TORCH and dtype.isnative


def torch_dtype(dtype: Any, what: str = "the program") -> torch.dtype:
    """PyTorch's dtype for one in any form that NumPy accepts.

    Args:
        what: what has the dtype, for the error.

    Raises:
        UnsupportedError: PyTorch does not compute with the dtype.
        TypeError: it is no dtype, as NumPy raises it.
    """
    known = np.dtype(dtype)
    if not is_covered(known):
        names = ", ".join(_NAMES)
        raise not_covered(f"{what} has the dtype {known}, with which PyTorch does not compute", f"use one of {names}")
    return TORCH[known]
