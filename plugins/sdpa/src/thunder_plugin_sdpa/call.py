"""A call of scaled_dot_product_attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import are_constant, as_constant
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
