"""Batching rules of `torch.vmap` for sizes that vary: PyTorch's own, in C++, read these sizes as plain numbers.

They compute what PyTorch's rules compute, by the same operators on the same tensors. PyTorch's dispatcher calls them
while its Python kernels are enabled in a thread (`thunder_core.tracing.sizes.kernels_for_sizes`), and they are installed
while a call under a transformation is recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import (
    BATCHED,
    current_interpreter,
    vmap_helper,
)

_aten: Final[Any] = torch.ops.aten
Tensor = torch.Tensor
Dim = int | None
"""The dimension of a tensor that is mapped; None for one that is the same in the whole batch."""


def _front(tensor: Tensor, dim: Dim, size: Any) -> Tensor:
    """The tensor with the mapped dimension in front, also if it has none."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _cat(info: Any, dims: Any, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    batched = [_front(tensor, index, info.batch_size) for tensor, index in zip(tensors, dims[0], strict=True)]
    kept = [tensor for tensor in batched if tensor.ndim != 2 or tensor.shape[1] != 0] or batched[:1]
    return _aten.cat.default(kept, dim + 1 if dim >= 0 else dim), 0


def _gather(info: Any, dims: Any, tensor: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    source, indices = (_front(each, at, info.batch_size) for each, at in ((tensor, dims[0]), (index, dims[2])))
    is_number = indices.ndim == 1  # for each example
    source, indices = (each.unsqueeze(-1) if each.ndim == 1 else each for each in (source, indices))
    result = _aten.gather.default(source, dim + 1 if dim >= 0 else dim, indices, sparse_grad=sparse_grad)
    return (result.squeeze(-1) if is_number else result), 0


def _layer_norm(
    info: Any, dims: Any, input: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    at = None if dims[0] is None else 0
    rank = input.ndim - (at is not None)
    x = input if at is None else input.movedim(dims[0], 0)
    parameters = [(weight, dims[2]), (bias, dims[3])]
    if all(parameter is None or dim is None for parameter, dim in parameters):
        return _aten.native_layer_norm.default(x, shape, weight, bias, eps), (at, at, at)
    result, mean, deviation = _aten.native_layer_norm.default(x, shape, None, None, eps)
    out = at
    for (parameter, dim), combine in zip(parameters, (torch.mul, torch.add), strict=True):
        if parameter is not None and dim is not None:
            moved = parameter.movedim(dim, 0)
            parameter, out = moved.reshape(moved.shape[0], *[1] * (rank - len(shape)), *moved.shape[1:]), 0
        if parameter is not None:
            result = combine(result, parameter)
    return (result, mean, deviation), (out, at, at)


_RULES: Final[dict[Any, Callable[..., Any]]] = {
    _aten.cat.default: _cat,
    _aten.gather.default: _gather,
    _aten.native_layer_norm.default: _layer_norm,
}
"""Rules of `torch.library.register_vmap`: they return the results and their mapped dimensions."""


def _kernel(operator: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: vmap_helper(current_interpreter(), rule, operator, *args, **kwargs)


_KERNELS: Final = {operator: _kernel(operator, rule) for operator, rule in _RULES.items()}
_lock: Final = threading.Lock()
_depth = 0


@contextmanager
def installed() -> Iterator[None]:
    """A context in which PyTorch's dispatcher calls the rules in threads whose Python kernels are enabled."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            for operator, kernel in _KERNELS.items():
                operator._dispatch_cache.pop(BATCHED, None)
                operator.py_kernels[BATCHED] = kernel
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                for operator in _KERNELS:
                    operator.py_kernels.pop(BATCHED, None)
                    operator._dispatch_cache.pop(BATCHED, None)
