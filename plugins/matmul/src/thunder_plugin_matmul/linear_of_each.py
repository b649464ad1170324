"""Linear layers whose weights lie in one memory, as one product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from thunder_core.pytorch_internals import FakeTensor


def linear_of_each(input: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """The results of linear layers, one after the other in the last dimension; ``biases`` may be empty.

    One product where the weights follow each other in memory; that is looked up in each call, so that no call sees
    weights of the past. Fake tensors have no addresses: what holds for them would be about other memory.
    """
    if isinstance(input, FakeTensor):
        raise NotImplementedError("whether it is one product is looked up in the memory of its weights, in each call")
    weight, bias = in_one(weights), in_one(biases) if biases else None
    if weight is not None and (bias is not None or not biases):
        return nn.functional.linear(input, weight, bias)
    none: list[Tensor | None] = [None] * len(weights)
    each = zip(weights, biases or none, strict=True)
    return torch.cat([nn.functional.linear(input, one, other) for one, other in each], -1)


def in_one(tensors: Sequence[Tensor]) -> Tensor | None:
    """Tensors that follow each other in one memory as one, joined in the first dimension; None where they do not."""
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
