"""Attention over jagged tensors by its formula, which PyTorch computes with nested tensors of the strided layout.

Those have no shape that a line could have. The function here takes and gives the values of jagged tensors, and is one
line of a trace.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from thunder_core.pytorch_internals import FakeTensor, scaled_dot_product_attention_math

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class JaggedAttention(torch.autograd.Function):
    """Attention within each sequence, in the operations of eager.

    Args:
        values: of query, key and value: ``(total length, heads, head size)``, contiguous.
        offsets: of each: where its sequences begin and end, ``int64[sequences + 1]``.
        dropout_p, scale: as of `torch.nn.functional.scaled_dot_product_attention`.

    Returns:
        The values of the result: ``(total length of the queries, heads, head size of value)``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        query_offsets: torch.Tensor,
        key_offsets: torch.Tensor,
        value_offsets: torch.Tensor,
        dropout_p: float,
        scale: float | None,
    ) -> torch.Tensor:
        if isinstance(query, FakeTensor):
            result = query.new_empty((*query.shape[:2], value.shape[2]))
            return torch.dropout(result, dropout_p, True) if dropout_p else result
        ctx.given = tuple([each.detach() for each in (query, key, value)])
        with torch.set_grad_enabled(any(ctx.needs_input_grad)):
            for each, wanted in zip(ctx.given, ctx.needs_input_grad, strict=False):
                each.requires_grad_(wanted)
            ctx.result = _attention(ctx.given, (query_offsets, key_offsets, value_offsets), dropout_p, scale)
        detached: torch.Tensor = ctx.result.detach()
        return detached

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if isinstance(gradient, FakeTensor):
            return tuple([torch.empty_like(each) for each in ctx.given])
        wanted = [each for each in ctx.given if each.requires_grad]
        found = iter(torch.autograd.grad(ctx.result, wanted, gradient, retain_graph=True))
        return (*[next(found) if each.requires_grad else None for each in ctx.given], *[None] * 5)


def _attention(values: Tensors, offsets: Tensors, dropout_p: float, scale: float | None) -> torch.Tensor:
    query, key, value = [
        torch.nested.as_nested_tensor(list(each.split(bounds.diff().tolist()))).transpose(1, 2).contiguous()
        for each, bounds in zip(values, offsets, strict=True)
    ]
    attended = scaled_dot_product_attention_math(query, key, value, None, dropout_p, False, scale=scale)[0]
    result: torch.Tensor = attended.transpose(1, 2).contiguous().values()
    return result.view(-1, values[0].shape[1], values[2].shape[2])
