"""Sizes that vary as arguments of torch calls: ``torch.tensor(x.shape[0]) - 1``, ``x[n]``, ``x[-16:]``.

A tensor of one number that is computed from sizes is computed by ops like any other. Where the program reads its
number, by ``int(n)`` or as the bound of a slice, it gets a symbolic size with the value that the ops compute, so that
one program serves all sizes.

A size as an index is recorded as a call that selects by it; PyTorch would use the number of this call. A slice of the
last elements, ``x[-16:]``, of a tensor with fewer elements in this call begins at an expression of the size: a cache
that grows beyond 16 elements then needs no other program.
"""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType, NoneType
from typing import Any, Final

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, SizeExpr
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_frontend.record.data_dependence import Declined, Resolved, ValueRequest
from thunder_frontend.record.open_trace import producer
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_size import TracedSize, traced, traced_size

Tensor: Any = torch.Tensor  # its methods are descriptors; the stubs declare functions

_READS: Final = frozenset({Tensor.item, Tensor.__int__, Tensor.__index__, Tensor.tolist})
_OPTIONS: Final = frozenset({"dtype", "device"})


_COMPUTATIONS: Final[dict[Any, Callable[..., Any]]] = {
    torch.full: lambda shape, value, **_: value,
    torch.add: lambda one, other, alpha=1: one + other * alpha,
    torch.sub: lambda one, other, alpha=1: one - other * alpha,
    torch.rsub: lambda one, other, alpha=1: other - one * alpha,
    torch.mul: lambda one, other: one * other,
    torch.floor_divide: lambda one, other: one // other,
    torch.remainder: lambda one, other: one % other,
    torch.neg: lambda one: -one,
}
"""The function of numbers that each function of int64 tensors computes."""


def make_tensor(
    recorder: Recorder, function: Callable[..., Any], size: TracedSize, options: dict[str, Any]
) -> torch.Tensor | None:
    """Record ``torch.tensor(size)``, for example, as an op that takes a size; None for unsupported options."""
    options = {name: option for name, option in options.items() if option is not None}
    if options.keys() - _OPTIONS:
        return None
    dtype = torch.get_default_dtype() if function is torch.scalar_tensor else torch.int64
    result: torch.Tensor = recorder.call(torch.full, ((), size), {"dtype": dtype, **options})
    return result


class SizeOfTensor:
    """Resolver that reads tensors computed from sizes as expressions of these sizes."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_frontend.record.data_dependence.Resolver`."""
        if recorder.inputs.input_sizes is None:
            return Declined("no size varies")
        if request.reads:
            known = size_of(recorder, request.call.proxies[0]) if request.symbol.target in _READS else None
            return Declined("its number is not computed from sizes") if known is None else Resolved(known)

        def number(leaf: Any) -> Any:
            known = size_of(recorder, recorder.tensors.proxy_of(leaf)) if isinstance(leaf, torch.Tensor) else None
            return leaf if known is None else known

        args = (*request.args[:1], *map_leaves(number, request.args[1:]))
        kwargs = map_leaves(number, request.kwargs)
        return request.recorded_with(recorder, args, kwargs) or Declined(
            "no argument is a tensor that is computed from sizes"
        )


def size_of(recorder: Recorder, proxy: TensorProxy) -> Any:
    """The size in a one-element tensor that ops compute from sizes; None for other tensors."""
    if proxy.shape or proxy.dtype is not torch.int64:
        return None
    ops = recorder.trace.all_ops()
    index = producer(ops, proxy)
    if index is None:
        return None
    op = ops[index]
    compute = _COMPUTATIONS.get(op.symbol.target)
    if compute is None or op.effects.mutates:
        return None
    numbers = [
        size_of(recorder, arg) if isinstance(arg, TensorProxy) else traced_size(arg)
        for arg in (op.args[1:] if op.symbol.target is torch.full else op.args)
    ]
    if not all(type(number) in (int, TracedSize) for number in numbers):
        return None
    if op.symbol.target is torch.full:
        numbers.insert(0, ())
    options = {name: traced_size(value) for name, value in op.kwargs.items() if isinstance(value, int | SizeExpr)}
    return compute(*numbers, **options)


_BASIC: Final = frozenset({int, TracedSize, slice, NoneType, EllipsisType})


def has_size(index: Any) -> bool:
    """Whether an index contains sizes, and otherwise only ints, slices, Ellipsis and, at the end, None.

    None has to come last, as the stride of its dimension depends on whether another dimension was selected before.
    """
    items = index if type(index) is tuple else (index,)
    sizes = [position for position, item in enumerate(items) if type(item) is TracedSize]
    return bool(sizes) and all(type(item) in _BASIC for item in items) and None not in items[: sizes[-1]]


def with_starts(recorder: Recorder, tensor: Tensor, index: Any) -> Any:
    """The index, with slices that would begin before the tensor in this call clamped to its start for all sizes.

    Slices that begin within the tensor stay: they have the same number of elements in all calls where they do.
    """
    items = index if type(index) is tuple else (index,)
    if not any(type(item) is slice and type(item.start) is int and item.start < 0 for item in items):
        return index
    if not all(type(item) in _BASIC for item in items):
        return index
    with recorder.suspension, DisableTorchFunction():
        shape = recorder.tensors.variable(tensor).proxy.shape
    changed = list(items)
    dim = 0
    for position, item in enumerate(items):
        if item is Ellipsis:
            dim = len(shape) - sum(other is not None for other in items[position + 1 :])
            continue
        if type(item) is slice and dim < len(shape):
            changed[position] = _with_start(item, shape[dim])
        dim += item is not None
    return tuple(changed) if type(index) is tuple else changed[0]


def _with_start(item: slice, size: Size) -> slice:
    if type(size) is not SizeExpr or type(item.start) is not int or item.start >= 0 or item.step not in (None, 1):
        return item
    if size.hint + item.start >= 0:
        return item
    return slice(traced(torch.sym_max(size.symint + item.start, 0)), item.stop, item.step)


def index_by_sizes(recorder: Recorder, function: Any, tensor: Tensor, index: Any, *value: Any) -> Any:
    """``tensor[index]``, or ``tensor[index] = value``, where `has_size` holds of the index."""
    items = index if type(index) is tuple else (index,)
    dim, rest = 0, []
    for position, item in enumerate(items):
        if type(item) is TracedSize:
            tensor = recorder.call(Tensor.select, (tensor, dim, item), {})
            continue
        rest.append(item)
        after = [other for other in items[position + 1 :] if other is not None]
        dim = tensor.ndim - len(after) if item is Ellipsis else dim + 1
    if not rest and function is Tensor.__getitem__:
        return tensor
    return recorder.call(function, (tensor, tuple(rest) or Ellipsis, *value), {})
