"""Operators whose kernels in Inductor differ from PyTorch's, with rewrites or reasons to decline them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.pytorch_errata import decomposition_error
from thunder_plugin_inductor.pytorch_internals import aten_assert_async

_aten: Final = torch.ops.aten
_DIVISIONS: Final = (torch.div, _aten.div)
_POWERS: Final = (torch.pow, _aten.pow)


def difference(bound: BoundSymbol) -> str | None:
    """The reason why a call would behave differently in Inductor; None if no difference is known."""
    target = getattr(bound.symbol.target, "overloadpacket", bound.symbol.target)
    if target is torch.nn.functional.one_hot:
        return "Inductor would not check that classes are in range, unlike the core-ATen form"
    if target in _DIVISIONS and bound.kwargs.get("rounding_mode") == "trunc" and not _floating(bound):
        return "Inductor's kernel ends the process where an integer is divided by zero"
    if target in _POWERS and not _floating(bound) and any(type(arg) is int and arg < 0 for arg in bound.args[1:]):
        return "Inductor's kernel computes powers of integers that PyTorch rejects"
    if bound.symbol.target in REWRITTEN:
        return None
    return decomposition_error(
        target, {proxy.device.type for proxy in bound.outputs() if isinstance(proxy, TensorProxy)}
    )


def _floating(bound: BoundSymbol) -> bool:
    return any(isinstance(proxy, TensorProxy) and proxy.dtype.is_floating_point for proxy in bound.outputs())


def _remainder(input: Any, other: Any) -> Any:
    """`torch.remainder` as in PyTorch's kernels: `fmod`, plus the divisor if the signs differ.

    Inductor computes ``input - floor(input / other) * other``, which is NaN for an infinite divisor, and inexact for
    large quotients.
    """
    dtype = torch.result_type(input, other)
    if not dtype.is_floating_point:
        return NotImplemented
    if not isinstance(input, Tensor):
        input = torch.full((), input, dtype=dtype, device=other.device)
    rest = torch.fmod(input, other)
    return torch.where((rest != 0) & ((rest < 0) != (other < 0)), rest + other, rest)


def _any(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """`torch.any` of uint8, which returns uint8; Inductor's returns bool."""
    return torch.any(input != 0, *args, **kwargs).to(torch.uint8) if input.dtype is torch.uint8 else NotImplemented


def _add(input: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """`torch.add` of bools with ``alpha``: Inductor computes it in int64, and writes int64 to memory of bools."""
    if torch.result_type(input, other) is not torch.bool or alpha is True or alpha == 1:
        return NotImplemented
    return input | other if alpha else input | (other & False)


def _binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Any:
    """With the checks of PyTorch's CPU kernel, which read no more than the loss does."""
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
"""Decompositions for graphs that are passed to Inductor; they return NotImplemented for calls that they do not change.
"""

_FROM_START: Final = (_aten.index_add.default, _aten.index_copy.default)
_FROM_END: Final = (_aten.index_fill.int_Scalar, _aten.index_fill.int_Tensor)


def with_checked_indices(decompositions: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Decompositions of operators that reject negative indices, which decompositions would count from the end.

    `index_fill` counts negative indices from the end, and is decomposed into an operator that does not.
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
    """Indices for kernels that count negative ones from the end: negative ones become out of range."""
    return torch.where(index < 0, _size(input, dim), index)


def _from_start(index: Tensor, input: Tensor, dim: int) -> Tensor:
    return torch.where(index < 0, index + _size(input, dim), index)


def _size(input: Tensor, dim: int) -> int:
    return input.shape[dim] if input.ndim else 1


def _selected(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """With `gather`, which does not count from the end.

    Unlike `torch.where`, Inductor can analyze its indices, for example those of `torch.roll`: they need no check.
    """

    def selected(input: Tensor, dim: int, index: Tensor) -> Any:
        if not input.ndim:
            return decomposition(input, dim, without_negative(index, input, dim))
        dim = dim % input.ndim
        index = index.reshape(-1, *[1] * (input.ndim - 1 - dim)).to(torch.int64)
        return torch.gather(input, dim, index.expand(*input.shape[:dim], -1, *input.shape[dim + 1 :]))

    return selected
