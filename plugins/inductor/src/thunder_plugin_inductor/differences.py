"""Where kernels of Inductor do other than PyTorch's: operators are rewritten for it, or calls left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy

_aten: Final = torch.ops.aten


def difference(bound: BoundSymbol) -> str | None:
    """Why the call would not do the same; None if it would, as far as is known."""
    target = getattr(bound.symbol.target, "overloadpacket", bound.symbol.target)
    if target not in (torch.div, _aten.div) or bound.kwargs.get("rounding_mode") != "trunc":
        return None
    if any(isinstance(proxy, TensorProxy) and proxy.dtype.is_floating_point for proxy in bound.outputs()):
        return None
    return "Inductor's kernel ends the process where an integer is divided by zero"


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


REWRITTEN: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys((_aten.remainder.Tensor, _aten.remainder.Scalar, _aten.remainder.Scalar_Tensor), _remainder),
    **dict.fromkeys((_aten.any.default, _aten.any.dim, _aten.any.dims), _any),
    _aten.add.Tensor: _add,
}
"""Decompositions for graphs that go to Inductor; they return NotImplemented for what they do not change."""
