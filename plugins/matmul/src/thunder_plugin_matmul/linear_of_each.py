"""Linear layers whose weights are adjacent in one storage, as one matmul."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from thunder_core.pytorch_internals import FakeTensor


def linear_of_each(input: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """The results of linear layers, concatenated in the last dimension; ``biases`` may be empty.

    One matmul if the weights are adjacent in memory. Each call checks that, so that it never uses outdated weights.
    Fake tensors have no addresses, so this function cannot run on them.
    """
    if isinstance(input, FakeTensor):
        raise NotImplementedError("each call checks whether the weights are adjacent in memory")
    weight, bias = in_one(weights), in_one(biases) if biases else None
    if weight is not None and (bias is not None or not biases):
        return nn.functional.linear(input, weight, bias)
    none: list[Tensor | None] = [None] * len(weights)
    each = zip(weights, biases or none, strict=True)
    return torch.cat([nn.functional.linear(input, one, other) for one, other in each], -1)


def in_one(tensors: Sequence[Tensor]) -> Tensor | None:
    """A view of tensors that are adjacent in one storage as one, along the first dimension; None if they are not."""
    first, rows = tensors[0], 0
    address: int = first.data_ptr()
    for tensor in tensors:
        if tensor.data_ptr() != address or not tensor.is_contiguous() or tensor.dtype is not first.dtype:
            return None
        address, rows = address + tensor.nbytes, rows + tensor.shape[0]
    storage = first.untyped_storage()
    if address > storage.data_ptr() + storage.nbytes():
        return None
    return first.as_strided((rows, *first.shape[1:]), first.stride())
