"""Tensors of one number that are computed from sizes: ``torch.tensor(x.shape[0]) - 1``.

Such a tensor is a line like any other. Where the program reads its number, as by ``int(n)`` or as the bound of a slice,
it gets the size that the lines compute, so that the program stays one for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.acquire.ranges import maker
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_size import TracedSize, traced_size
from thunder_core.acquire.value_request import Declined, Resolved, ValueRequest
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import SizeExpr
from thunder_core.ir.tree import iterate_leaves, map_leaves

Tensor: Any = torch.Tensor  # its methods are descriptors, which the stubs do not say

_READS: Final = frozenset({Tensor.item, Tensor.__int__, Tensor.__index__, Tensor.tolist})
_OPTIONS: Final = frozenset({"dtype", "device"})


def _sum(one: Any, other: Any, *, alpha: Any = 1) -> Any:
    return one + other * alpha


def _difference(one: Any, other: Any, *, alpha: Any = 1) -> Any:
    return one - other * alpha


def _reversed_difference(one: Any, other: Any, *, alpha: Any = 1) -> Any:
    return other - one * alpha


_COMPUTATIONS: Final[dict[Any, Callable[..., Any]]] = {
    torch.full: lambda shape, value, **_: value,
    torch.add: _sum,
    torch.sub: _difference,
    torch.rsub: _reversed_difference,
    torch.mul: lambda one, other: one * other,
    torch.floor_divide: lambda one, other: one // other,
    torch.remainder: lambda one, other: one % other,
    torch.neg: lambda one: -one,
}
"""What functions of int64 tensors do to their numbers."""


def make_tensor(
    recorder: Recorder, function: Callable[..., Any], size: TracedSize, options: dict[str, Any]
) -> torch.Tensor | None:
    """``torch.tensor(size)`` and the like as a line that takes a size; None with options that such a line has not."""
    given = {name: option for name, option in options.items() if option is not None}
    if given.keys() - _OPTIONS:
        return None
    dtype = torch.get_default_dtype() if function is torch.scalar_tensor else torch.int64
    result: torch.Tensor = recorder.call(torch.full, ((), size), {"dtype": dtype, **given})
    return result


class SizeOfTensor:
    """Reads tensors that are computed from sizes, as these sizes."""

    def resolve(self, recorder: Recorder, request: ValueRequest) -> Resolved | Declined:
        """As `thunder_core.acquire.recorder.Resolver`."""
        if recorder.inputs.input_sizes is None:
            return Declined("no size varies")
        if request.reads:
            known = size_of(recorder, request.call.proxies[0]) if request.symbol.target in _READS else None
            return Declined("its number is not computed from sizes") if known is None else Resolved(known)

        def number(leaf: Any) -> Any:
            known = size_of(recorder, recorder.tensors.proxy_of(leaf)) if isinstance(leaf, torch.Tensor) else None
            return leaf if known is None else known

        first, *others = request.args or (None,)
        args = (first, *map_leaves(number, others))
        kwargs = map_leaves(number, request.kwargs)
        pairs = zip(_leaves(args, kwargs), _leaves(request.args, request.kwargs), strict=True)
        if all(one is other for one, other in pairs):
            return Declined("it takes no tensor that is computed from sizes")
        return Resolved(recorder.call_symbol(request.symbol, args, kwargs))


def _leaves(args: Any, kwargs: Any) -> list[Any]:
    return list(iterate_leaves((args, kwargs)))


def size_of(recorder: Recorder, proxy: TensorProxy) -> Any:
    """The number of a tensor of one element that lines compute from sizes, as the program gets it; None for others."""
    if proxy.shape or proxy.dtype is not torch.int64:
        return None
    for lines in recorder.trace.outwards():
        found = maker(lines, proxy)
        if found is not None:
            break
    else:
        return None
    line = lines[found]
    compute = _COMPUTATIONS.get(line.symbol.target)
    if compute is None or line.effects.mutates:
        return None
    numbers = [
        size_of(recorder, arg) if isinstance(arg, TensorProxy) else traced_size(arg)
        for arg in (line.args[1:] if line.symbol.target is torch.full else line.args)
    ]
    if not all(type(number) in (int, TracedSize) for number in numbers):
        return None
    if line.symbol.target is torch.full:
        numbers.insert(0, ())
    options = {name: traced_size(value) for name, value in line.kwargs.items() if isinstance(value, int | SizeExpr)}
    return compute(*numbers, **options)
