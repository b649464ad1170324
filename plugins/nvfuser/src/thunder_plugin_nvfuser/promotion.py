"""The dtype in which an operator computes, by PyTorch's promotion rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.pytorch_internals import PROMOTION, elementwise_dtypes

WIDEST: Final = PROMOTION.DEFAULT
"""The promoted dtype of the operands."""
FLOAT: Final = PROMOTION.INT_TO_FLOAT
"""The same; the default dtype for integers."""
COMPARISON: Final = PROMOTION.ALWAYS_BOOL
"""The promoted dtype of the operands; the result is bool."""


def computation_dtype(operands: Sequence[Any], rule: PROMOTION) -> torch.dtype:
    """The dtype to compute in: float32 for float16 and bfloat16, as in PyTorch's kernels.

    Args:
        operands: numbers, and objects with ``dtype`` and ``shape``.
        rule: the promotion rule.
    """
    kinds = tuple([x if isinstance(x, bool | int | float) else (x.dtype, bool(len(x.shape))) for x in operands])
    return _dtype(kinds, tuple(map(type, kinds)), rule, torch.get_default_dtype())


@lru_cache(maxsize=4096)
def _dtype(kinds: tuple[Any, ...], types: tuple[type, ...], rule: PROMOTION, default: torch.dtype) -> torch.dtype:
    operands = [
        torch.empty((1,) if kind[1] else (), dtype=kind[0], device="meta") if isinstance(kind, tuple) else kind
        for kind in kinds
    ]
    dtype: torch.dtype
    dtype, _ = elementwise_dtypes(*operands, type_promotion_kind=rule)
    return dtype
