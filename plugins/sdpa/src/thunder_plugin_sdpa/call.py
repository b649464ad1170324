"""One call of scaled_dot_product_attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import are_constant, as_constant
from thunder_core.passes.attention import AttentionCall


@dataclass(frozen=True, slots=True)
class Call(AttentionCall):
    """The arguments by what they mean, and calls like it that kernels are asked about."""

    def anonymous(self) -> Call:
        """Equal for calls that differ in names and memory only."""
        query, key, value, *mask = [replace(tensor, name="", storage=0) for tensor in self.tensors.values()]
        return replace(self, query=query, key=key, value=value, mask=mask[0] if mask else None)

    @property
    def varies(self) -> bool:
        """Whether a size varies between calls of the program."""
        return not all(are_constant((*tensor.shape, *tensor.stride)) for tensor in self.tensors.values())

    def recorded(self) -> Call:
        """The call with the sizes that the program was recorded with."""
        query, key, value, *mask = [tensor.with_sizes(as_constant) for tensor in self.tensors.values()]
        return replace(self, query=query, key=key, value=value, mask=mask[0] if mask else None)

    def repeated(self) -> Call:
        """The call with a copy of the key heads for each head."""
        key, value = (_with_heads(tensor, self.query.shape[1]) for tensor in (self.key, self.value))
        return replace(self, key=key, value=value, grouped=False)


def _with_heads(tensor: TensorProxy, heads: Any) -> TensorProxy:
    """A dense tensor with that many heads."""
    batch, _, length, size = tensor.shape
    return replace(
        tensor,
        shape=(batch, heads, length, size),
        stride=(heads * length * size, length * size, size, 1),
        offset=0,
    )
