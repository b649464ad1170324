"""The operators that nvFuser runs, by themselves; and why it does not run some that look as if it might."""

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
    "nvFuser's reductions give no positions": (aten.argmax, aten.argmin, aten.max, aten.min),
    "nvFuser's scatter does not add up": (
        aten.scatter_add,
        aten.scatter_reduce,
        aten.index_put,
        aten.index_add,
        aten.embedding_dense_backward,
    ),
    "nvFuser slices in steps of 1 alone": (aten.flip,),
    "it views memory by strides": (aten.as_strided, aten.as_strided_copy, aten.as_strided_scatter),
    "its result is memory that nobody wrote": (aten.empty, aten.empty_strided, aten.empty_like),
    "nvFuser's shifts are undefined beyond the width": (aten.bitwise_left_shift, aten.bitwise_right_shift),
    "nvFuser sorts and scans a dimension within one block alone": (aten.sort, aten.topk, aten.cumsum, aten.cumprod),
    "PyTorch's libraries run convolutions": (aten.convolution, aten.convolution_backward),
}


def reason_against(operator: Any) -> str:
    """Why an operator without a row is not in regions."""
    packet = getattr(operator, "overloadpacket", operator)
    for reason, packets in _WHY_NOT.items():
        if packet in packets:
            return f"{packet}: {reason}"
    if torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ()):
        return f"{packet} draws random numbers, and nvFuser's are others than PyTorch's"
    return f"nvFuser has nothing for {operator}"
