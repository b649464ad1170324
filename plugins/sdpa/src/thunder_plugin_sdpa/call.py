"""A call of scaled_dot_product_attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, are_constant, as_constant, least_of
from thunder_plugin_composites.attention_calls import AttentionCall


@dataclass(frozen=True, slots=True)
class Call(AttentionCall):
    """The arguments by meaning, and derived calls for which kernels are checked."""

    def anonymous(self) -> Call:
        """A call that is equal for calls that differ only in names and storages."""
        query, key, value, *mask = [replace(tensor, name="", storage=0) for tensor in self.tensors.values()]
        return replace(self, query=query, key=key, value=value, mask=mask[0] if mask else None)

    @property
    def varies(self) -> bool:
        """Whether a size is symbolic."""
        return not all(are_constant((*tensor.shape, *tensor.stride)) for tensor in self.tensors.values())

    def recorded(self) -> Call:
        """The call with the sizes of the recording."""
        query, key, value, *mask = [tensor.with_sizes(as_constant) for tensor in self.tensors.values()]
        return replace(self, query=query, key=key, value=value, mask=mask[0] if mask else None)

    @property
    def has_scattered_mask(self) -> bool:
        """Whether the elements of the mask's rows are not adjacent in memory, as after a permutation."""
        mask = self.mask
        if mask is None or mask.ndim == 0 or mask.layout is not torch.strided or not isinstance(mask.shape[-1], Size):
            return False
        return least_of(mask.shape[-1]) > 1 and isinstance(mask.stride[-1], int) and mask.stride[-1] != 1

    def with_adjacent_rows(self) -> Call:
        """The call with the mask as `thunder_plugin_sdpa.formula.with_mask_for_kernels` copies it."""
        assert self.mask is not None
        *sizes, step = self.mask.shape
        strides: list[Size] = [1]
        for size, stride in zip(reversed(sizes), reversed(self.mask.stride[:-1]), strict=True):
            strides.insert(0, 0 if stride == 0 else step)
            step = step if stride == 0 else step * size
        return replace(self, mask=replace(self.mask, stride=tuple(strides), offset=0))

    def repeated(self) -> Call:
        """The call with key heads repeated for each query head."""
        key, value = (_with_heads(tensor, self.query.shape[1]) for tensor in (self.key, self.value))
        return replace(self, key=key, value=value, grouped=False)


def _with_heads(tensor: TensorProxy, heads: Any) -> TensorProxy:
    """A dense tensor with this number of heads."""
    batch, _, length, size = tensor.shape
    return replace(
        tensor,
        shape=(batch, heads, length, size),
        stride=(heads * length * size, length * size, size, 1),
        offset=0,
    )
