"""Calls of scaled_dot_product_attention, as executors with kernels for it read them.

Two ways are in use: ``k.repeat_interleave(n, 1)``, and ``k[:, :, None].expand(...).reshape(...)``.
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
    """Operations that copy elements, or view them, in their order; with other sizes of dimensions perhaps."""
    functions: tuple[Any, ...] = (
        torch.reshape,
        torch.Tensor.view,
        torch.Tensor.contiguous,
        torch.clone,
        torch.flatten,
    )
    return frozenset(map(registry.symbol_of, functions))


def with_fewer_heads(line: BoundSymbol, producers: Producers) -> BoundSymbol | None:
    """The same attention from the keys and values before they were repeated; None if they were not.

    Args:
        line: a call of scaled_dot_product_attention on tensors of four dimensions.
        producers: the lines before it, by the names of their results.
    """
    query, *repeated = line.args[:3]
    key, value = (_unrepeated(tensor, producers) for tensor in repeated)
    if line.output.requires_grad:  # a detached value has another gradient
        pairs = zip((key, value), repeated, strict=True)
        key, value = (old if old is not None and old.requires_grad == new.requires_grad else None for old, new in pairs)
    if key is None or value is None or key.shape[1] != value.shape[1]:
        return None
    args = (query, key, value, *line.args[3:])
    return replace(line, args=args, kwargs={**line.kwargs, "enable_gqa": True})


def _unrepeated(tensor: TensorProxy, producers: Producers) -> TensorProxy | None:
    """What each head of ``tensor`` is one of several equal copies of, next to each other; None if they are not."""
    value = tensor
    while (line := producers.get(value.name)) is not None and value.dtype is tensor.dtype:
        if line.symbol is _repeats():
            return _argument_of_repeat(line) if value.shape == tensor.shape else None
        if value.ndim == 5 and value.stride[2] == 0:
            return _before_expansion(value, tensor, producers)
        if line.symbol not in _keep_order():
            return None
        (value,) = tensor_inputs_of(line)
    return None


def _argument_of_repeat(line: BoundSymbol) -> TensorProxy | None:
    source, repeats = line.args[0], line.args[1] if len(line.args) > 1 else line.kwargs.get("repeats")
    dimension = line.args[2] if len(line.args) > 2 else line.kwargs.get("dim")
    return source if type(repeats) is int and dimension in (1, -3) else None


def _before_expansion(expanded: TensorProxy, tensor: TensorProxy, producers: Producers) -> TensorProxy | None:
    """The value that ``expanded`` shows once for each step of its third dimension.

    Among the values that it is a view of, that is the one with the same elements of the same memory, without the third
    dimension.
    """
    batch, heads, repeats, length, size = expanded.shape
    if tensor.shape != (batch, heads * repeats, length, size) or expanded.stride[2] != 0 or repeats < 2:
        return None
    wanted = ((batch, heads, length, size), (*expanded.stride[:2], *expanded.stride[3:]), expanded.offset)
    found: TensorProxy = expanded
    while (line := producers.get(found.name)) is not None and line.is_view():
        sources = tensor_inputs_of(line)
        if len(sources) != 1:
            return None
        (found,) = sources
        if found.geometry == wanted and found.dtype is tensor.dtype:
            return found
    return None


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
