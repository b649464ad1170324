"""Conversion of ``attn_mask`` to cuDNN's bias: a tensor of four dimensions that is added to the scores."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_cudnn.layouts import Layout, canonical_layout

MASKED: Final = -65504.0
"""The value that PyTorch's cuDNN attention uses instead of minus infinity: a fully masked row equals an unmasked one.
"""


def as_bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """The mask as (batch or 1, heads or 1, queries or 1, keys).

    Expanded dimensions have size 1. A bool mask becomes 0 where it is true, and `MASKED` elsewhere.
    """
    if mask is None:
        return None
    bias = mask.reshape((1,) * (4 - mask.ndim) + tuple(mask.shape))
    for dimension in range(3):
        if bias.stride(dimension) == 0:
            bias = bias.narrow(dimension, 0, 1)
    if bias.dtype is not torch.bool:
        return bias
    masked = torch.full((), MASKED, dtype=query.dtype, device=query.device)
    return torch.where(bias, 0.0, masked).contiguous()


def bias_layout(mask: TensorProxy, dtype: torch.dtype) -> Layout:
    """The layout of `as_bias` of a mask for a query of this dtype."""
    missing = 4 - mask.ndim
    shape: tuple[Any, ...] = (*(1,) * missing, *mask.shape)
    stride: tuple[Any, ...] = (*(0,) * missing, *mask.stride)
    shape = tuple([1 if step == 0 and place < 3 else size for place, (size, step) in enumerate(zip(shape, stride))])
    if mask.dtype is not torch.bool:
        return canonical_layout(mask.dtype, shape, stride)
    dense = tuple([1] * 4)
    for place in (2, 1, 0):
        dense = (*dense[:place], dense[place + 1] * shape[place + 1], *dense[place + 1 :])
    return canonical_layout(dtype, shape, dense)
