"""One call of scaled_dot_product_attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from thunder_core.ir.proxy import TensorProxy


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments, by what they mean.

    Attributes:
        query: (batch, heads, queries, size), as key and value are where kernels take them.
        key: (batch, key heads, keys, size)
        value: (batch, key heads, keys, value size)
        mask: broadcast to (batch, heads, queries, keys); bool, or added to the products. None: there is none.
        dropout: the probability of dropping a weight.
        causal: whether query ``i`` sees the keys up to ``i`` only.
        scale: of the products; None for one over the root of the size.
        grouped: whether each key head may serve several heads.
    """

    query: TensorProxy
    key: TensorProxy
    value: TensorProxy
    mask: TensorProxy | None
    dropout: Any
    causal: Any
    scale: Any
    grouped: Any

    @classmethod
    def of(
        cls,
        query: TensorProxy,
        key: TensorProxy,
        value: TensorProxy,
        attn_mask: TensorProxy | None = None,
        dropout_p: Any = 0.0,
        is_causal: Any = False,
        *,
        scale: Any = None,
        enable_gqa: Any = False,
    ) -> Call:
        """The call with these arguments of `torch.nn.functional.scaled_dot_product_attention`."""
        return cls(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    @property
    def tensors(self) -> tuple[TensorProxy, ...]:
        """All of them, the mask last."""
        own = (self.query, self.key, self.value)
        return own if self.mask is None else (*own, self.mask)

    @property
    def differentiated(self) -> bool:
        """Whether a gradient may be asked for."""
        return any(tensor.requires_grad for tensor in self.tensors)

    def anonymous(self) -> Call:
        """Equal for calls that differ in names and memory only."""
        query, key, value, *mask = [replace(tensor, name="", storage=0) for tensor in self.tensors]
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
