"""The table of operators that nvFuser supports, and reasons why it does not support some similar ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_plugin_nvfuser.operators import (
    activations,
    binary,
    casts,
    division,
    indexing,
    joining,
    matmul,
    normalization,
    reductions,
    shape,
    unary,
)
from thunder_plugin_nvfuser.row import Row

_FILES: Final = (
    unary,
    binary,
    division,
    activations,
    casts,
    shape,
    joining,
    reductions,
    normalization,
    indexing,
    matmul,
)

TABLE: Final[dict[Callable[..., Any], Row]] = {row.operator: row for file in _FILES for row in file.ROWS}

aten: Final = torch.ops.aten

_WHY_NOT: Final[dict[str, tuple[Any, ...]]] = {
    "nvFuser's reductions return no indices": (aten.argmax, aten.argmin, aten.max, aten.min),
    "nvFuser's scatter does not accumulate": (
        aten.scatter_add,
        aten.scatter_reduce,
        aten.index_put,
        aten.index_add,
        aten.embedding_dense_backward,
    ),
    "nvFuser only slices with step 1": (aten.flip,),
    "it is a view by strides": (aten.as_strided, aten.as_strided_copy, aten.as_strided_scatter),
    "its result is uninitialized memory": (aten.empty, aten.empty_strided, aten.empty_like),
    "nvFuser's shifts are undefined beyond the width": (aten.bitwise_left_shift, aten.bitwise_right_shift),
    "nvFuser sorts and scans a dimension only within one block": (aten.sort, aten.topk, aten.cumsum, aten.cumprod),
    "PyTorch's libraries run convolutions": (aten.convolution, aten.convolution_backward),
}


def reason_against(operator: Any) -> str:
    """The reason why an operator without a row is declined."""
    packet = getattr(operator, "overloadpacket", operator)
    for reason, packets in _WHY_NOT.items():
        if packet in packets:
            return f"{packet}: {reason}"
    if torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ()):
        return f"{packet} draws random numbers, which differ from PyTorch's in nvFuser"
    return f"nvFuser does not implement {operator}"
