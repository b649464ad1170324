"""Analysis of scaled_dot_product_attention calls, for executors with attention kernels.

`with_fewer_heads` undoes the repetition of key and value heads, which models write in two ways:
``k.repeat_interleave(n, 1)``, and ``k[:, :, None].expand(...).reshape(...)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.symbols.registry import registry

Producers = Mapping[str, BoundSymbol]


@cache
def _repeats() -> Symbol:
    return registry.symbol_of(torch.repeat_interleave)


@cache
def _keep_order() -> frozenset[Symbol]:
    """Operations that copy or view all elements in order, possibly with another shape."""
    functions: tuple[Any, ...] = (
        torch.reshape,
        torch.Tensor.view,
        torch.Tensor.contiguous,
        torch.clone,
        torch.flatten,
    )
    return frozenset(map(registry.symbol_of, functions))


def with_fewer_heads(op: BoundSymbol, producers: Producers) -> BoundSymbol | None:
    """The same attention with grouped heads, on keys and values before their repetition; None without a repetition.

    Args:
        op: a call of scaled_dot_product_attention on tensors of four dimensions.
        producers: the preceding ops, by the names of their results.
    """
    query, *repeated = op.args[:3]
    key, value = (_unrepeated(tensor, producers) for tensor in repeated)
    if op.output.requires_grad:  # the gradient would change if a detached value were replaced
        pairs = zip((key, value), repeated, strict=True)
        key, value = (old if old is not None and old.requires_grad == new.requires_grad else None for old, new in pairs)
    if key is None or value is None or key.shape[1] != value.shape[1]:
        return None
    args = (query, key, value, *op.args[3:])
    return replace(op, args=args, kwargs={**op.kwargs, "enable_gqa": True})


def _unrepeated(tensor: TensorProxy, producers: Producers) -> TensorProxy | None:
    """The tensor whose heads ``tensor`` repeats, copies of one head adjacent; None if it repeats none."""
    value = tensor
    while (op := producers.get(value.name)) is not None and value.dtype is tensor.dtype:
        if op.symbol is _repeats():
            return _argument_of_repeat(op) if value.shape == tensor.shape else None
        if value.ndim == 5 and value.stride[2] == 0:
            return _before_expansion(value, tensor, producers)
        if op.symbol not in _keep_order():
            return None
        (value,) = tensor_inputs_of(op)
    return None


def _argument_of_repeat(op: BoundSymbol) -> TensorProxy | None:
    source, repeats = op.args[0], op.args[1] if len(op.args) > 1 else op.kwargs.get("repeats")
    dimension = op.args[2] if len(op.args) > 2 else op.kwargs.get("dim")
    return source if type(repeats) is int and dimension in (1, -3) else None


def _before_expansion(expanded: TensorProxy, tensor: TensorProxy, producers: Producers) -> TensorProxy | None:
    """The value of which ``expanded`` is an expansion along a new third dimension; None if there is none.

    It is the base view with the geometry of ``expanded`` without the third dimension.
    """
    batch, heads, repeats, length, size = expanded.shape
    if tensor.shape != (batch, heads * repeats, length, size) or expanded.stride[2] != 0 or repeats < 2:
        return None
    wanted = ((batch, heads, length, size), (*expanded.stride[:2], *expanded.stride[3:]), expanded.offset)
    base: TensorProxy = expanded
    while (op := producers.get(base.name)) is not None and op.is_view():
        sources = tensor_inputs_of(op)
        if len(sources) != 1:
            return None
        (base,) = sources
        if base.geometry == wanted and base.dtype is tensor.dtype:
            return base
    return None


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The arguments of a scaled_dot_product_attention call, normalized.

    Attributes:
        query: (batch, heads, queries, size)
        key: (batch, key heads, keys, size)
        value: (batch, key heads, keys, value size)
        mask: broadcast to (batch, heads, queries, keys); bool, or added to the scores. None without a mask.
        dropout: the probability of dropping a weight.
        causal: whether query ``i`` sees the keys up to ``i`` only.
        scale: factor of the scores; None for ``1 / sqrt(size)``.
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
        """Query, key and value by name."""
        return {"query": self.query, "key": self.key, "value": self.value}

    @property
    def tensors(self) -> dict[str, TensorProxy]:
        """Query, key, value and, if it is a tensor, the mask, by name."""
        return self.inputs if self.mask is None else {**self.inputs, "attn_mask": self.mask}

    @property
    def differentiated(self) -> bool:
        """Whether a gradient may be needed."""
        return any(tensor.requires_grad for tensor in self.tensors.values())
