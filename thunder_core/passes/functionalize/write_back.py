"""Compute the new value of a base tensor from the new value of a view of it.

The rules depend on geometry alone. They are tried in turn; the last one always applies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from thunder_core.errors import FunctionalizationError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.geometry import contiguous, dense
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import guard_at_most, least_of
from thunder_core.ir.symbol import CallStyle
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_proxies, map_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.symbols import functions


def write_back(
    emitter: Emitter, base: TensorProxy, view: TensorProxy, value: TensorProxy, step: BoundSymbol
) -> TensorProxy:
    """Emit the value of ``base`` after a write of ``value`` to a view of it.

    Args:
        base: functional value of the viewed tensor before the write.
        view: functional value of the view before the write: an output of ``step`` on ``base``.
        value: the written value, with the shape, strides and dtype of ``view``.
    """
    by_geometry = view.dtype == base.dtype and not base.dtype.is_complex  # complex views may be conjugates
    if by_geometry:
        inverse = _inverse(emitter, base, view, value)
        if inverse is not None:
            return inverse
    result = emitter.fresh(base, requires_grad=base.requires_grad or value.requires_grad)
    scattered = _scatter(base, view) if by_geometry and dense(base) else None
    if scattered is not None:
        function, arguments = scattered
        emitter.call(function, (base, value, *arguments), result)
        return result
    if step.symbol.style is CallStyle.GETITEM and dense(base):
        emitter.call(functions.setitem_copy, (base, step.args[1], value), result)
        return result
    emitter.call(operations.view_write, (base, value, _view_function(emitter, base, view, step)), result)
    return result


def _inverse(emitter: Emitter, base: TensorProxy, view: TensorProxy, value: TensorProxy) -> TensorProxy | None:
    """``value`` viewed with the geometry of ``base``, if the view covers all its elements; else None."""
    if (view.shape, view.stride, view.offset) == (base.shape, base.stride, base.offset):
        return value
    if view.offset != base.offset or view.numel != base.numel:
        return None
    result = emitter.fresh(base, requires_grad=value.requires_grad, storage=value.storage)
    result = replace(result, offset=value.offset)
    if contiguous(base) and contiguous(view):
        emitter.call(torch.reshape, (value, tuple(base.shape)), result)
        return result
    permutation = _permutation(base, view)
    if permutation is not None:
        emitter.call(torch.permute, (value, permutation), result)
        return result
    return None


def _permutation(base: TensorProxy, view: TensorProxy) -> tuple[int, ...] | None:
    """For each dimension of ``base``, its dimension in ``view``; None unless there is exactly one permutation."""
    where = {pair: index for index, pair in enumerate(zip(view.shape, view.stride, strict=True))}
    wanted = list(zip(base.shape, base.stride, strict=True))
    if len(where) != view.ndim or len(wanted) != view.ndim or any(pair not in where for pair in wanted):
        return None
    return tuple(where[pair] for pair in wanted)


def _scatter(base: TensorProxy, view: TensorProxy) -> tuple[Any, tuple[Any, ...]] | None:
    """The scatter function, with its further arguments, for a view that is a slice of one dimension; else None."""
    distance: Any = view.offset - base.offset
    if view.ndim == base.ndim - 1:
        for dim in range(base.ndim):
            rest = (_without(base.shape, dim), _without(base.stride, dim))
            step = base.stride[dim]
            if rest == (view.shape, view.stride) and least_of(step) > 0 and distance % step == 0:
                index = distance // step
                if guard_at_most(index + 1, base.shape[dim]):
                    return torch.select_scatter, (dim, index)
    if view.ndim == base.ndim:
        return _slice(base, view, distance)
    return None


def _slice(base: TensorProxy, view: TensorProxy, distance: Any) -> tuple[Any, tuple[Any, ...]] | None:
    different = [
        dim for dim in range(base.ndim) if (base.shape[dim], base.stride[dim]) != (view.shape[dim], view.stride[dim])
    ]
    if len(different) != 1:
        return None
    dim = different[0]
    unit: Any = base.stride[dim]
    stride, size = view.stride[dim], view.shape[dim]
    if least_of(unit) <= 0 or size == 0 or stride % unit != 0 or distance % unit != 0:
        return None
    start, step = distance // unit, 1 if stride == 0 else stride // unit
    stop = start + (size - 1) * step + 1
    if not guard_at_most(stop, base.shape[dim]):
        return None
    return torch.slice_scatter, (dim, start, stop) if step == 1 else (dim, start, stop, step)


def _without(values: tuple[Any, ...], dim: int) -> tuple[Any, ...]:
    return values[:dim] + values[dim + 1 :]


def _view_function(emitter: Emitter, base: TensorProxy, view: TensorProxy, step: BoundSymbol) -> Trace:
    """``step`` as a trace from ``base`` to the view."""
    others = {proxy.name for proxy in iterate_proxies((step.args, step.kwargs))} - {base.name}
    if others:
        raise FunctionalizationError(
            f"A write to a view that {step.symbol.name} takes with further tensors cannot be functionalized",
            location=emitter.location or step.location,
            advice=("write to a tensor that is not a view, and copy it",),
        )
    names = {proxy.name: f"v{index}" for index, proxy in enumerate(step.outputs())}
    output = map_leaves(lambda leaf: _named(leaf, names), step.output)
    op = BoundSymbol(step.symbol, step.args, step.kwargs, output, step.effects, step.context, step.location)
    return Trace("view", (base,), (op,), _named(view, names), Stage.FUNCTIONAL, "functionalization", emitter.ambient)


def _named(leaf: Any, names: dict[str, str]) -> Any:
    return replace(leaf, name=names[leaf.name]) if isinstance(leaf, TensorProxy) else leaf
