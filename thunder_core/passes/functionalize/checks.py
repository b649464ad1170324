"""Writes that cannot be expressed functionally."""

from __future__ import annotations

from itertools import combinations

from thunder_core.errors import FunctionalizationError, UnsupportedError
from thunder_core.ir import geometry
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tensors import tensor_outputs_of
from thunder_core.passes.functionalize.memory import View


def check_writable(bound: BoundSymbol, targets: list[View]) -> None:
    """Raise FunctionalizationError when the memory that ``bound`` writes cannot be followed."""
    for view in targets:
        if view.memory.conflict is not None:
            raise FunctionalizationError(
                view.memory.conflict,
                location=bound.location,
                advice=("pass tensors that do not overlap, or pass one of them and make views of it inside",),
            )
        if geometry.expanded(view.proxy):
            raise _several_in_one_place(bound, "an expanded tensor")
        if geometry.overlaps_itself(view.proxy) and not _fills(bound):
            raise _several_in_one_place(bound, "a tensor that overlaps itself")
    for one, other in combinations(targets, 2):
        if one.memory is other.memory and not geometry.disjoint(one.proxy, other.proxy):
            raise FunctionalizationError(
                f"{bound.symbol.name} writes to two tensors that overlap in memory",
                location=bound.location,
                advice=("clone() one of them before the call",),
            )


def _fills(bound: BoundSymbol) -> bool:
    """Whether the order does not matter in which a call writes elements that are one place in memory."""
    values = [leaf for leaf in bound.args[1:] if isinstance(leaf, TensorProxy)]
    return Tag.FILL in bound.symbol.tags and all(value.numel == 1 for value in values)


def _several_in_one_place(bound: BoundSymbol, what: str) -> FunctionalizationError:
    return FunctionalizationError(
        f"{bound.symbol.name} writes to {what}: several elements are one place in memory",
        location=bound.location,
        advice=("clone() the tensor before the write",),
    )


def check_shapes(bound: BoundSymbol, targets: list[View]) -> None:
    """Raise UnsupportedError when ``bound`` returns a written argument with another shape."""
    for proxy in tensor_outputs_of(bound):
        if any(view.shows_like(proxy) for view in targets):
            continue
        if any(view.proxy.storage == proxy.storage for view in targets):
            raise UnsupportedError(
                f"{bound.symbol.name} changes the shape of its argument in place",
                location=bound.location,
                advice=("use the out-of-place function and rebind the variable",),
            )
