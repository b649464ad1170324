"""Where kernels of Inductor do other than PyTorch's: operators are rewritten for it, or calls left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.pytorch_errata import loss
from thunder_plugin_inductor.pytorch_internals import aten_assert_async

_aten: Final = torch.ops.aten
_DIVISIONS: Final = (torch.div, _aten.div)
_POWERS: Final = (torch.pow, _aten.pow)


def difference(bound: BoundSymbol) -> str | None:
    """Why the call would not do the same; None if it would, as far as is known."""
    target = getattr(bound.symbol.target, "overloadpacket", bound.symbol.target)
    if target is torch.nn.functional.one_hot:
        return "it would not check that classes are in range; its core-ATen form does"
    if target in _DIVISIONS and bound.kwargs.get("rounding_mode") == "trunc" and not _floating(bound):
        return "Inductor's kernel ends the process where an integer is divided by zero"
    if target in _POWERS and not _floating(bound) and any(type(arg) is int and arg < 0 for arg in bound.args[1:]):
        return "Inductor's kernel gives powers of integers that PyTorch refuses"
    if bound.symbol.target in REWRITTEN:
        return None
    return loss(target, {proxy.device.type for proxy in bound.outputs() if isinstance(proxy, TensorProxy)})


def _floating(bound: BoundSymbol) -> bool:
    return any(isinstance(proxy, TensorProxy) and proxy.dtype.is_floating_point for proxy in bound.outputs())


def _remainder(input: Any, other: Any) -> Any:
    """`torch.remainder` as PyTorch's kernels compute it: `fmod`, and once the divisor where signs differ.

    Inductor's own is ``input - floor(input / other) * other``: not a number where a divisor is infinite, and inexact
    for large quotients.
    """
    dtype = torch.result_type(input, other)
    if not dtype.is_floating_point:
        return NotImplemented
    if not isinstance(input, Tensor):
        input = torch.full((), input, dtype=dtype, device=other.device)
    rest = torch.fmod(input, other)
    return torch.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


def _any(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`torch.any` of uint8, which is uint8; Inductor's is bool."""
    return torch.any(input != 0, *args, **kwargs).to(torch.uint8) if input.dtype is torch.uint8 else NotImplemented


def _add(input: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """`torch.add` of bools with ``alpha``, which Inductor computes in int64, and writes as that where bools are."""
    if torch.result_type(input, other) is not torch.bool or alpha is True or alpha == 1:
        return NotImplemented
    return input | other if alpha else input | (other & False)


def _binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Any:
    """With the checks that PyTorch's kernel for a CPU makes, which read nothing that the loss does not read, too."""
    from thunder_plugin_inductor.pytorch_internals import decomposition_table

    if input.device.type == "cpu":
        for name, value in (("input", input), ("target", target)):
            message = f"all elements of {name} should be between 0 and 1"
            aten_assert_async(((value >= 0) & (value <= 1)).all(), message)
    return decomposition_table[_aten.binary_cross_entropy.default](input, target, weight, reduction)


REWRITTEN: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys((_aten.remainder.Tensor, _aten.remainder.Scalar, _aten.remainder.Scalar_Tensor), _remainder),
    **dict.fromkeys((_aten.any.default, _aten.any.dim, _aten.any.dims), _any),
    _aten.add.Tensor: _add,
    _aten.binary_cross_entropy.default: _binary_cross_entropy,
}
"""Decompositions for graphs that go to Inductor; they return NotImplemented for what they do not change."""

_FROM_START: Final = (_aten.index_add.default, _aten.index_copy.default)
_FROM_END: Final = (_aten.index_fill.int_Scalar, _aten.index_fill.int_Tensor)


def with_checked_indices(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Those of operators for which negative indices are errors; decomposed they count from the end.

    `index_fill` does count so, and is decomposed into an operator that does not.
    """
    select = _aten.index_select.default
    checked = {operator: _indexed(decompositions[operator], without_negative) for operator in _FROM_START}
    checked |= {operator: _indexed(decompositions[operator], _from_start) for operator in _FROM_END}
    return checked | {select: _selected(decompositions[select])}


def _indexed(decomposition: Callable[..., Any], changed: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[..., Any]:
    def indexed(input: Tensor, dim: int, index: Tensor, *args: Any, **kwargs: Any) -> Any:
        return decomposition(input, dim, changed(index, input, dim), *args, **kwargs)

    return indexed


def without_negative(index: Tensor, input: Tensor, dim: int) -> Tensor:
    """Indices for kernels that count negative ones from the end: these are out of range here, as those too large."""
    return torch.where(index < 0, _size(input, dim), index)


def _from_start(index: Tensor, input: Tensor, dim: int) -> Tensor:
    return torch.where(index < 0, index + _size(input, dim), index)


def _size(input: Tensor, dim: int) -> int:
    return input.shape[dim] if input.ndim else 1


def _selected(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """By `gather`, which counts from the start alone.

    Other than of a `torch.where`, Inductor sees through its indices, of `torch.roll` for instance: they need no check.
    """

    def selected(input: Tensor, dim: int, index: Tensor) -> Any:
        if not input.ndim:
            return decomposition(input, dim, without_negative(index, input, dim))
        dim = dim % input.ndim
        index = index.reshape(-1, *[1] * (input.ndim - 1 - dim)).to(torch.int64)
        return torch.gather(input, dim, index.expand(*input.shape[:dim], -1, *input.shape[dim + 1 :]))

    return selected
