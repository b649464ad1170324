"""Batching rules of `torch.vmap` for sizes that vary: PyTorch's own, in C++, read these sizes as plain numbers.

They compute what PyTorch's rules compute, by the same operators on the same tensors, and leave calls without sizes that
vary to PyTorch's. The dispatcher calls them in threads whose Python kernels are enabled
(`thunder_core.tracing.sizes.kernels_for_sizes`), while a call under a transformation is recorded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from thunder_core.forking import in_child, renew_in_child
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import (
    BATCHED,
    current_interpreter,
    dispatch_cache,
    kernel_for_key,
    kernels_by_key,
    vmap_helper,
)

_aten: Final[Any] = torch.ops.aten
Tensor = torch.Tensor


def _front(tensor: Tensor, dim: int | None, size: Any) -> Tensor:
    """The tensor with the mapped dimension in front; one that is the same in the whole batch is expanded."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _laid_out(tensor: Tensor, dim: int | None, size: Any) -> Tensor:
    """`_front`, contiguous: PyTorch's kernels of some operators take the layout of these arguments for granted."""
    return _front(tensor, dim, size).contiguous()


def _cat(info: Any, dims: Any, tensors: Sequence[Tensor], dim: int = 0) -> Any:
    batched = [_front(tensor, index, info.batch_size) for tensor, index in zip(tensors, dims[0], strict=True)]
    kept = [tensor for tensor in batched if tensor.ndim != 2 or tensor.shape[1] != 0] or batched[:1]
    if len(kept) < len(batched) and any(tensor.dtype != batched[0].dtype for tensor in batched):
        return NotImplemented  # an empty tensor counts for the type of the result
    return _aten.cat.default(kept, dim + 1 if dim >= 0 else dim), 0


def _gather(info: Any, dims: Any, tensor: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    source, indices = (_front(each, at, info.batch_size) for each, at in ((tensor, dims[0]), (index, dims[2])))
    is_number = indices.ndim == 1  # for each example
    source, indices = (each.unsqueeze(-1) if each.ndim == 1 else each for each in (source, indices))
    result = _aten.gather.default(source, dim + 1 if dim >= 0 else dim, indices, sparse_grad=sparse_grad)
    return (result.squeeze(-1) if is_number else result), 0


_SCALE_AND_SHIFT: Final[tuple[Callable[..., Tensor], ...]] = (torch.mul, torch.add)


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
    for (parameter, dim), combine in zip(parameters, _SCALE_AND_SHIFT, strict=True):
        if parameter is not None and dim is not None:
            moved = parameter.movedim(dim, 0)
            parameter, out = moved.reshape(moved.shape[0], *[1] * (rank - len(shape)), *moved.shape[1:]), 0
        if parameter is not None:
            result = combine(result, parameter)
    return (result, mean, deviation), (out, at, at)


def _layer_norm_backward(
    info: Any,
    dims: Any,
    gradient: Tensor,
    input: Tensor,
    shape: Any,
    mean: Tensor,
    deviation: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> Any:
    size = info.batch_size
    gradient, input, mean, deviation = (
        _laid_out(each, dim, size)
        for each, dim in zip((gradient, input, mean, deviation), (dims[0], dims[1], dims[3], dims[4]), strict=True)
    )
    outer = list(range(1, gradient.ndim - len(shape)))  # the dimensions that parameters do not have
    scaled = gradient
    if weight is not None:
        own = [size, *[1] * len(outer), *shape]
        scaled = gradient * (weight if dims[5] is None else weight.movedim(dims[5], 0).reshape(own))
    of_input = of_weight = of_bias = None
    if mask[0]:
        of_input, _, _ = _aten.native_layer_norm_backward.default(
            scaled.contiguous(), input, shape, mean, deviation, None, None, [True, False, False]
        )
    if weight is not None and mask[1]:
        product = (input - mean) * deviation * gradient
        of_weight = product.sum(outer) if outer else product
    if bias is not None and mask[2]:
        of_bias = gradient.sum(outer) if outer else gradient
    return _with_dims(of_input, of_weight, of_bias)


def _group_norm(
    info: Any, dims: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, count: Any, *options: Any
) -> Any:
    if dims[0] is None or dims[1] is not None or dims[2] is not None:
        return NotImplemented
    merged = _laid_out(input, dims[0], info.batch_size).flatten(0, 1)
    results = _aten.native_group_norm.default(merged, weight, bias, count * info.batch_size, *options)
    return tuple([each.unflatten(0, (info.batch_size, -1)) for each in results]), (0, 0, 0)


def _per_channel(tensor: Tensor, dim: int | None, like: Tensor) -> Tensor:
    """A tensor of channels, to be broadcast with batches ``like`` of dimensions ``(batch, N, C, ...)``."""
    moved = tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
    return moved.reshape(moved.shape[0], 1, moved.shape[1], *[1] * (like.ndim - 3))


def _as_channels(tensor: Tensor) -> Tensor:
    """Batches of dimensions ``(batch, N, C, ...)``, with the examples as further channels."""
    return tensor.movedim(0, 1).flatten(1, 2)


def _from_channels(tensor: Tensor, size: Any) -> Tensor:
    examples: Tensor = tensor.unflatten(1, (size, -1))
    return examples.movedim(1, 0)


def _statistics(tensor: Tensor | None, dim: int | None, size: Any) -> Tensor | None:
    return None if tensor is None else _front(tensor, dim, size).reshape(-1)


def _batch_norm(
    info: Any,
    dims: Any,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if dims[0] is None or (training and mean is not None):
        return NotImplemented  # the running statistics are updated in place
    if any(each is not None and each.dtype is not input.dtype for each in (weight, bias, mean, variance)):
        return NotImplemented  # PyTorch's rule allows some pairs of dtypes
    size, x = info.batch_size, input.movedim(dims[0], 0)
    running = _statistics(mean, dims[3], size), _statistics(variance, dims[4], size)
    out, *saved = _aten.native_batch_norm.default(_as_channels(x), None, None, *running, training, momentum, eps)
    result = _from_channels(out, size)
    for parameter, dim, combine in zip((weight, bias), dims[1:3], _SCALE_AND_SHIFT, strict=True):
        if parameter is not None:
            result = combine(result, _per_channel(parameter, dim, result))
    return (result, *[each.reshape(size, each.shape[0] // size) for each in saved]), (0, 0, 0)


def _batch_norm_of_batch(
    info: Any,
    dims: Any,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    dims = (*dims[:3], None, None, *dims[3:])
    return _batch_norm(info, dims, input, weight, bias, None, None, training, momentum, eps)


def _batch_norm_in_evaluation(info: Any, dims: Any, *args: Any) -> Any:
    input, weight, bias, mean, variance, momentum, eps = args
    dims = (*dims[:5], None, *dims[5:])
    return _batch_norm(info, dims, input, weight, bias, mean, variance, False, momentum, eps)


def _batch_norm_backward(
    info: Any,
    dims: Any,
    gradient: Tensor,
    input: Tensor,
    weight: Tensor | None,
    mean: Any,
    variance: Any,
    batch_mean: Any,
    batch_deviation: Any,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> Any:
    size = info.batch_size
    gradient, input = (_front(each, dim, size) for each, dim in zip((gradient, input), dims, strict=False))
    statistics = [
        _statistics(each, dim, size)
        for each, dim in zip((mean, variance, batch_mean, batch_deviation), dims[3:7], strict=True)
    ]
    scaled = gradient if weight is None else gradient * _per_channel(weight, dims[2], gradient)
    of_input = of_weight = of_bias = None
    if mask[0]:
        of_input, _, _ = _aten.native_batch_norm_backward.default(
            _as_channels(scaled), _as_channels(input), None, *statistics, training, eps, [True, False, False]
        )
        of_input = _from_channels(of_input, size)
    outer = [1, *range(3, gradient.ndim)]  # the dimensions that parameters do not have
    if mask[1]:
        center, scale = (batch_mean, batch_deviation) if training else (mean, (variance + eps).rsqrt())
        at = dims[5:7] if training else dims[3:5]
        normed = (input - _per_channel(center, at[0], input)) * _per_channel(scale, at[1], input)
        of_weight = (normed * gradient).sum(outer)
    if mask[2]:
        of_bias = gradient.sum(outer)
    return _with_dims(of_input, of_weight, of_bias)


def _solve(info: Any, dims: Any, matrix: Tensor, right: Tensor, **options: Any) -> Any:
    ranks = [each.ndim - (dim is not None) for each, dim in zip((matrix, right), dims, strict=True)]
    if ranks[0] != ranks[1] and ranks != [2, 1]:
        return NotImplemented  # the batch would be aligned with another dimension
    example = matrix if dims[0] is None else matrix.select(dims[0], 0)
    place = _laid_out if example.is_contiguous() and not matrix.is_complex() else _front  # decides the algorithm
    batched = place(matrix, dims[0], info.batch_size), _front(right, dims[1], info.batch_size)
    return _aten._linalg_solve_ex.default(*batched, **options), (0, 0, 0, 0)


def _with_dims(*gradients: Tensor | None) -> Any:
    """Gradients, and 0 as the mapped dimension of each that is wanted."""
    return gradients, tuple([None if each is None else 0 for each in gradients])


def _scattered(operator: Any) -> Callable[..., Any]:
    """The rule of an operator that writes at indices: of a tensor, a dimension, indices, and a tensor or a number."""

    def rule(info: Any, dims: Any, tensor: Tensor, dim: int, index: Tensor, source: Any, **options: Any) -> Any:
        is_number = tensor.ndim - (dims[0] is not None) == 0
        batched = [_front(tensor, dims[0], info.batch_size), _front(index, dims[2], info.batch_size)]
        if isinstance(source, Tensor):
            batched.append(_front(source, dims[3], info.batch_size))
        batched = [each.unsqueeze(-1) if each.ndim == 1 else each for each in batched]
        target, indices, *sources = batched
        values = sources or [source]
        result = operator(target, dim + 1 if dim >= 0 else dim, indices, *values, **options)
        return (result.squeeze(-1) if is_number else result), 0

    return rule


def _convolution(info: Any, dims: Any, input: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Any:
    if dims[0] is None or dims[1] is not None or dims[2] is not None:
        return NotImplemented
    merged = _laid_out(input, dims[0], info.batch_size).flatten(0, 1)
    result = _aten.convolution.default(merged, weight, bias, *options)
    return result.unflatten(0, (info.batch_size, -1)), 0


def _convolution_backward(
    info: Any,
    dims: Any,
    gradient: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    if dims[0] is None or dims[1] is None or dims[2] is not None or transposed:
        return NotImplemented
    size = info.batch_size
    options = (stride, padding, dilation, transposed, output_padding)
    gradients, inputs = _laid_out(gradient, dims[0], size), _laid_out(input, dims[1], size)
    of_input = of_weight = of_bias = None
    if mask[0]:
        merged = gradients.flatten(0, 1), inputs.flatten(0, 1)
        of_input, _, _ = _aten.convolution_backward.default(
            *merged, weight, None, *options, groups, [True, False, False]
        )
        of_input = of_input.unflatten(0, (size, -1))
    if mask[1]:  # the examples are groups of channels
        merged = gradients.movedim(0, 1).flatten(1, 2), inputs.movedim(0, 1).flatten(1, 2)
        whole = weight.new_empty(1).expand(size * weight.shape[0], *weight.shape[1:])
        _, of_weight, _ = _aten.convolution_backward.default(
            *merged, whole, None, *options, groups * size, [False, True, False]
        )
        of_weight = of_weight.unflatten(0, (size, -1))
    if mask[2]:
        of_bias = gradients.sum([1, *range(3, gradients.ndim)])
    return _with_dims(of_input, of_weight, of_bias)


def _embedding_backward(
    info: Any, dims: Any, gradient: Tensor, index: Tensor, count: int, padding: int, scales: bool
) -> Any:
    if dims[1] is None or scales or padding >= 0:
        return NotImplemented
    size = info.batch_size
    indices = index.movedim(dims[1], 0)
    offsets = torch.arange(size, device=index.device).reshape(-1, *[1] * (indices.ndim - 1)) * count
    result = _aten.embedding_dense_backward.default(
        _laid_out(gradient, dims[0], size), indices + offsets, size * count, -1, False
    )
    return result.unflatten(0, (size, count)), 0


def _of_batches(operator: Any) -> Callable[..., Any]:
    """The rule of an operator on tensors whose dimension 0 is a batch: the examples are larger batches."""

    def rule(info: Any, dims: Any, *args: Any, attn_mask: Tensor | None = None, **options: Any) -> Any:
        if attn_mask is not None:
            return NotImplemented
        merged = [
            _laid_out(arg, dim, info.batch_size).flatten(0, 1) if isinstance(arg, Tensor) else arg
            for arg, dim in zip(args, dims, strict=True)
        ]
        results = operator(*merged, **options)
        if isinstance(results, Tensor):
            return results.unflatten(0, (info.batch_size, -1)), 0
        return tuple([each.unflatten(0, (info.batch_size, -1)) for each in results]), (0,) * len(results)

    return rule


def _pointwise(operator: Any) -> Callable[..., Any]:
    """The rule of an operator on tensors that are broadcast to one shape."""

    def rule(info: Any, dims: Any, *args: Any, **options: Any) -> Any:
        batched = [
            _front(arg, dim, info.batch_size) if isinstance(arg, Tensor) else arg
            for arg, dim in zip(args, dims, strict=True)
        ]
        if len({arg.ndim for arg in batched if isinstance(arg, Tensor)}) > 1:
            return NotImplemented  # the batch would be aligned with another dimension
        return operator(*batched, **options), 0

    return rule


_RULES: Final[dict[Any, Callable[..., Any]]] = {
    _aten.cat.default: _cat,
    _aten.gather.default: _gather,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
    _aten.native_group_norm.default: _group_norm,
    _aten.native_batch_norm.default: _batch_norm,
    _aten._native_batch_norm_legit.no_stats: _batch_norm_of_batch,
    _aten._native_batch_norm_legit_no_training.default: _batch_norm_in_evaluation,
    _aten.native_batch_norm_backward.default: _batch_norm_backward,
    _aten._linalg_solve_ex.default: _solve,
    _aten.convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
    **{
        operator: _scattered(operator)
        for operator in (_aten.scatter.src, _aten.scatter.value, _aten.scatter_add.default)
    },
    **{
        operator: _of_batches(operator)
        for operator in (
            _aten._scaled_dot_product_flash_attention_for_cpu.default,
            _aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            *(_aten.avg_pool2d.default, _aten.avg_pool2d_backward.default),
            *(_aten.max_pool2d_with_indices.default, _aten.max_pool2d_with_indices_backward.default),
            *(_aten._adaptive_avg_pool2d.default, _aten._adaptive_avg_pool2d_backward.default),
        )
    },
    **{
        operator: _pointwise(operator)
        for operator in (
            *(_aten.gelu_backward.default, _aten.silu_backward.default, _aten.mish_backward.default),
            *(_aten.elu_backward.default, _aten.leaky_relu_backward.default, _aten.softplus_backward.default),
            *(_aten.hardtanh_backward.default, _aten.hardswish_backward.default, _aten.hardsigmoid_backward.default),
            *(_aten.threshold_backward.default, _aten.log_sigmoid_backward.default),
        )
    },
}
"""Rules of `torch.library.register_vmap`: they return the results and their mapped dimensions.

Those that return NotImplemented leave the call to PyTorch.
"""


class _LeftToPyTorch(Exception):
    """A rule returned NotImplemented."""


def _kernel(operator: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        result = rule(*args, **kwargs)
        if result is NotImplemented:
            raise _LeftToPyTorch
        return result

    def kernel(*args: Any, **kwargs: Any) -> Any:
        interpreter = current_interpreter()
        tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not _are_plain([interpreter.batch_size(), *[size for tensor in tensors for size in tensor.shape]]):
            try:
                return vmap_helper(interpreter, checked, operator, *args, **kwargs)
            except _LeftToPyTorch:
                pass
        return kernel_for_key(operator)(BATCHED, *args, **kwargs)

    return kernel


def _are_plain(sizes: Sequence[Any]) -> bool:
    """Whether none of the sizes varies."""
    return all(type(size) is int for size in sizes)


_KERNELS: Final = {operator: _kernel(operator, rule) for operator, rule in _RULES.items()}
_lock: Final = threading.Lock()
renew_in_child(sys.modules[__name__], "_lock")
_depth = 0


@contextmanager
def installed() -> Iterator[None]:
    """A context in which PyTorch's dispatcher calls the rules in threads whose Python kernels are enabled."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            for operator, kernel in _KERNELS.items():
                dispatch_cache(operator).pop(BATCHED, None)
                kernels_by_key(operator)[BATCHED] = kernel
    try:
        yield
    finally:
        with _lock:
            _depth = max(_depth - 1, 0)  # 0 already in a child that was forked in the context
            if _depth == 0:
                _uninstall()


def _uninstall() -> None:
    for operator in _KERNELS:
        kernels_by_key(operator).pop(BATCHED, None)
        dispatch_cache(operator).pop(BATCHED, None)


@in_child
def _uninstall_in_child() -> None:
    """Remove the rules that other threads have installed."""
    global _depth
    _depth = 0
    _uninstall()
