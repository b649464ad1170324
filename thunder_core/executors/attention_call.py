"""One call of scaled_dot_product_attention, as executors are offered it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from thunder_core.ir.proxy import TensorProxy


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The arguments, by what they mean.

    Attributes:
        query: (batch, heads, queries, size)
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
    ) -> Self:
        """The call with these arguments of `torch.nn.functional.scaled_dot_product_attention`."""
        return cls(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    @property
    def inputs(self) -> dict[str, TensorProxy]:
        """Query, key and value, by name."""
        return {"query": self.query, "key": self.key, "value": self.value}

    @property
    def tensors(self) -> dict[str, TensorProxy]:
        """All of them, the mask last."""
        return self.inputs if self.mask is None else {**self.inputs, "attn_mask": self.mask}

    @property
    def differentiated(self) -> bool:
        """Whether a gradient may be needed."""
        return any(tensor.requires_grad for tensor in self.tensors.values())
