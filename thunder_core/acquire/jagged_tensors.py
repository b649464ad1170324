"""Functions of jagged tensors that PyTorch computes by values of tensors, or with nested tensors of another layout.

They are recorded in terms of the values and offsets of the tensors, with the same results and derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend

from thunder_core.acquire.recorder import Recorder
from thunder_core.symbols.jagged_attention import JaggedAttention

Tensor: Any = torch.Tensor

_UNBIND: Final = frozenset({Tensor.unbind, torch.unbind})


class _ByFormula(Exception):
    """Raised in place of attention by its formula.

    Attributes:
        query, key, value, dropout_p: as autocast has them.
    """

    def __init__(self, query: Any, key: Any, value: Any, dropout_p: float) -> None:
        self.query, self.key, self.value, self.dropout_p = query, key, value, dropout_p


def call(recorder: Recorder, original: Callable[..., Any], func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The interception of what the class does in place of a torch function.

    Raises:
        NotImplementedError: nothing else than to call its operators.
    """
    if func is Tensor.requires_grad_ and _stays_as_it_is(*args, **kwargs):
        return args[0]
    if func in _UNBIND and torch.is_grad_enabled():
        return _unbind(*args, **kwargs)
    if func is Tensor.__iter__ and torch.is_grad_enabled():
        return iter(_unbind(*args))
    if func is not F.scaled_dot_product_attention:
        return original(func, *args, **kwargs)
    try:
        return original(func, *args, **kwargs)
    except _ByFormula as attention:
        return _attention(attention, kwargs.get("scale"))


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
    bounds = {"min_seqlen": query._maybe_min_seqlen, "max_seqlen": query._maybe_max_seqlen}
    result = torch.nested.nested_tensor_from_jagged(values, query.offsets(), query.lengths(), **bounds)
    return result.transpose(1, 2)


def _unbind(jagged: Any, dim: int = 0) -> Any:
    """The tensors that a jagged tensor consists of, as parts of its values."""
    if dim not in (0, -jagged.dim()):
        raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
    values, ragged, lengths = jagged.values(), jagged._ragged_idx - 1, jagged.lengths()
    if lengths is None:
        return torch.split(values, jagged.offsets().diff().tolist(), ragged)
    pairs = zip(jagged.offsets().tolist(), lengths.tolist(), strict=False)
    return tuple([values.narrow(ragged, start, length) for start, length in pairs])
