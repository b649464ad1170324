"""Jagged tensors: functions that PyTorch computes from values of tensors, or with nested tensors of another layout.

They are recorded in terms of the values and offsets of the tensors, with the same results and derivatives. PyTorch's
math implementation of attention uses nested tensors with the strided layout, which have no shape that a trace can
represent, so such a call is one op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend

from thunder_core.pytorch_internals import FakeTensor
from thunder_frontend.record.interception import for_private_name, run_once
from thunder_frontend.record.recorder import Recorder
from thunder_plugin_subclasses.pytorch_internals import (
    jagged_torch_function,
    nested_from_padded,
    nested_view_dummy,
    scaled_dot_product_attention_math,
    select_sdp_backend,
)

Tensor: Any = torch.Tensor

_UNBIND: Final = frozenset({Tensor.unbind, torch.unbind})
_SELECT: Final = frozenset({Tensor.select, torch.select})
_CHUNK: Final = frozenset({Tensor.chunk, torch.chunk})
_BMM: Final = frozenset({Tensor.bmm, torch.bmm})
_MATMUL: Final = frozenset({Tensor.matmul, Tensor.__matmul__, torch.matmul, torch.linalg.matmul})


class _ByFormula(Exception):
    """Raised instead of calling the math implementation of attention.

    Attributes:
        query, key, value, dropout_p: the arguments, after autocast.
    """

    def __init__(self, query: Any, key: Any, value: Any, dropout_p: float) -> None:
        self.query, self.key, self.value, self.dropout_p = query, key, value, dropout_p


def call(recorder: Recorder, original: Callable[..., Any], func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The interception of the jagged implementation of a torch function.

    Raises:
        NotImplementedError: the class has none, so that its operators are called.
    """
    if func is Tensor.requires_grad_ and _stays_as_it_is(*args, **kwargs):
        return args[0]
    if torch.is_grad_enabled():
        result = _with_gradients(func, *args, **kwargs)
        if result is not NotImplemented:
            return result
    if func is not F.scaled_dot_product_attention:
        return original(func, *args, **kwargs)
    try:
        return original(func, *args, **kwargs)
    except _ByFormula as attention:
        return _attention(attention, kwargs.get("scale"))


def _with_gradients(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The result of a function whose derivative in eager, or which itself, splits a tensor by lengths.

    Returns:
        NotImplemented for any other function.
    """
    if func in _UNBIND:
        return _unbind(*args, **kwargs)
    if func is Tensor.__iter__:
        return iter(_unbind(*args))
    if func in _SELECT and not kwargs and args[1] in (0, -args[0].dim()):
        return _unbind(args[0])[args[2]]
    if func is Tensor.__getitem__:
        first, *rest = args[1] if type(args[1]) is tuple and args[1] else (args[1],)
        if type(first) is int:
            component = _unbind(args[0])[first]
            return component[tuple(rest)] if rest else component
    if func in _CHUNK:
        return _chunk(*args, **kwargs)
    if func in _MATMUL | _BMM and "out" not in kwargs:
        left, right = (*args, *kwargs.values())
        if left.is_nested:
            return _matmul_of_jagged(left, right)
        if func in _MATMUL:
            return _matmul_with_jagged(left, right)
    return NotImplemented


def _stays_as_it_is(jagged: Any, requires_grad: bool = True) -> bool:
    return bool(jagged.requires_grad) == requires_grad


def choose_backend(
    recorder: Recorder,
    original: Callable[..., Any],
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    dropout_p: float,
    *options: Any,
) -> Any:
    """The interception of PyTorch's choice of a kernel for attention over jagged tensors."""
    backend = original(query, key, value, attn_mask, dropout_p, *options)
    if backend == SDPBackend.MATH:
        raise _ByFormula(query, key, value, dropout_p)
    return backend


def _attention(attention: _ByFormula, scale: float | None) -> Any:
    query = attention.query
    inputs = [each.transpose(1, 2).values() for each in (query, attention.key, attention.value)]
    offsets = [each.offsets() for each in (query, attention.key, attention.value)]
    values = JaggedAttention.apply(*inputs, *offsets, attention.dropout_p, scale)
    return _with_values_of(query.transpose(1, 2), values).transpose(1, 2)


def _unbind(jagged: Any, dim: int = 0) -> Any:
    """The components of a jagged tensor, as views of its values."""
    if dim not in (0, -jagged.dim()):
        raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
    values, ragged, lengths = jagged.values(), jagged._ragged_idx - 1, jagged.lengths()
    if lengths is None:
        return torch.split(values, jagged.offsets().diff().tolist(), ragged)
    pairs = zip(jagged.offsets().tolist(), lengths.tolist(), strict=False)
    return tuple([values.narrow(ragged, start, length) for start, length in pairs])


def _chunk(jagged: Any, chunks: int, dim: int = 0) -> Any:
    """Parts of the batch, with views of the values; NotImplemented for chunks along another dimension."""
    if dim not in (0, -jagged.dim()) or jagged._ragged_idx != 1 or jagged.lengths() is not None:
        return NotImplemented
    lengths = jagged.offsets().diff().chunk(chunks)
    values = torch.split(jagged.values(), [sum(part.tolist()) for part in lengths])
    return tuple(
        [
            torch.nested.nested_tensor_from_jagged(part, F.pad(each.cumsum(0), (1, 0)))
            for part, each in zip(values, lengths, strict=True)
        ]
    )


def _matmul_of_jagged(left: Any, right: Any) -> Any:
    """A product that eager computes or differentiates by splitting a jagged tensor; NotImplemented for others.

    Eager computes the gradient of a dense factor for each component. Here it is one matmul: of the values if the
    factor is a matrix, of padded tensors if it is a batch of matrices.
    """
    if right.is_nested:
        if (left.dim(), left._ragged_idx, right.dim(), right._ragged_idx) == (3, 2, 3, 1):
            return torch.stack([torch.matmul(*pair) for pair in zip(_unbind(left), _unbind(right), strict=True)])
    elif left.is_contiguous() and left._ragged_idx < left.dim() - 1:
        if right.dim() == 2:
            return F.linear(left, right.t())
        if right.dim() == left.dim():
            return _padded(left, lambda padded: torch.matmul(padded, right))
    return NotImplemented


def _matmul_with_jagged(left: Any, right: Any) -> Any:
    """The same for a dense tensor and a jagged one whose last dimension is ragged."""
    if right._ragged_idx == right.dim() - 1 and right.lengths() is None:
        if left.dim() == 2 and right.dim() == 3:
            return _with_values_of(right, torch.matmul(left, right.values()))
        if left.dim() == right.dim():  # padding along the last dimension has no derivative
            return _padded(right.transpose(-1, -2), lambda padded: torch.matmul(left, padded.mT).mT).transpose(-1, -2)
    return NotImplemented


def _with_values_of(jagged: Any, values: torch.Tensor) -> Any:
    """A jagged tensor of ``values`` with the lengths of another."""
    bounds = {"min_seqlen": jagged._maybe_min_seqlen, "max_seqlen": jagged._maybe_max_seqlen}
    return torch.nested.nested_tensor_from_jagged(
        values, jagged.offsets(), jagged.lengths(), jagged_dim=jagged._ragged_idx, **bounds
    )


def _padded(jagged: Any, function: Callable[[Any], Any]) -> Any:
    """The result of ``function`` of the tensor padded with zeros, as a jagged tensor with the same lengths."""
    ragged, total = jagged._ragged_idx, jagged.values().shape[jagged._ragged_idx - 1]
    longest = jagged._maybe_max_seqlen
    size = (*jagged.shape[:ragged], total if longest is None else longest, *jagged.shape[ragged + 1 :])
    result = function(jagged.to_padded_tensor(0.0, output_size=size))
    bounds = {"min_seqlen": jagged._maybe_min_seqlen, "max_seqlen": longest}
    return nested_from_padded(result, jagged.offsets(), ragged, sum_S=total, **bounds)


Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class JaggedAttention(torch.autograd.Function):
    """Attention within each sequence, with the operators of eager.

    Args:
        values: the values of query, key and value: ``(total length, heads, head size)``, contiguous.
        offsets: the offsets of each, the bounds of its sequences: ``int64[sequences + 1]``.
        dropout_p, scale: as for `torch.nn.functional.scaled_dot_product_attention`.

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
            ctx.result = _formula(ctx.given, (query_offsets, key_offsets, value_offsets), dropout_p, scale)
        detached: torch.Tensor = ctx.result.detach()
        return detached

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if isinstance(gradient, FakeTensor):
            return tuple([torch.empty_like(each) for each in ctx.given])
        wanted = [each for each in ctx.given if each.requires_grad]
        gradients = iter(torch.autograd.grad(ctx.result, wanted, gradient, retain_graph=True))
        return (*[next(gradients) if each.requires_grad else None for each in ctx.given], *[None] * 5)


def _formula(values: Tensors, offsets: Tensors, dropout_p: float, scale: float | None) -> torch.Tensor:
    query, key, value = [
        torch.nested.as_nested_tensor(list(each.split(bounds.diff().tolist()))).transpose(1, 2).contiguous()
        for each, bounds in zip(values, offsets, strict=True)
    ]
    attended = scaled_dot_product_attention_math(query, key, value, None, dropout_p, False, scale=scale)[0]
    result: torch.Tensor = attended.transpose(1, 2).contiguous().values()
    return result.view(-1, values[0].shape[1], values[2].shape[2])


INTERCEPTIONS: Final = (
    *for_private_name(nested_view_dummy, run_once, "PyTorch caches the jagged tensor that it creates"),
    *for_private_name(jagged_torch_function, call, "jagged tensors are recorded by their values and offsets"),
    *for_private_name(select_sdp_backend, choose_backend, "attention over jagged tensors is one op"),
)
"""The replacements of PyTorch's functions, which `thunder_plugin_subclasses.interceptions` contains."""
