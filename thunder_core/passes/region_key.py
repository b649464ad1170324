"""When two regions are equal: the same symbols, wiring, constants and metadata, whatever the names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace


def region_key(region: Trace) -> Hashable | None:
    """A key that is equal for regions that compute the same in the same way; None for one that has no such key.

    Everything that compiled code may depend on is in it: symbols, how values flow, literals with their types, of each
    value the shape, strides, offset, dtype and device, and which values share memory.
    """
    keys = _Keys()
    try:
        lines = tuple([keys.line(bound) for bound in region.symbols])
        key = (region.context, keys.value(region.inputs), lines, keys.value(region.output))
        hash(key)
    except (TypeError, _NoKey):  # an argument that is not hashable, or a function of the user's
        return None
    return key


def lines_key(lines: Sequence[BoundSymbol]) -> Hashable | None:
    """Like `region_key`, of lines alone: whatever others read of them."""
    keys = _Keys()
    try:
        key = tuple([keys.line(bound) for bound in lines])
        hash(key)
    except (TypeError, _NoKey):
        return None
    return key


class _NoKey(Exception):
    pass


class _Keys:
    """Numbers values and memories in the order in which they appear."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.memories: dict[int, int] = {}

    def line(self, bound: BoundSymbol) -> Hashable:
        if Tag.LOCAL in bound.symbol.tags:  # a key would keep the user's function alive
            raise _NoKey
        return (
            bound.symbol,
            self.value(bound.args),
            self.value(bound.kwargs) if bound.kwargs else None,
            self.value(bound.output),
            bound.context,
        )

    def value(self, value: Any) -> Hashable:
        kind = type(value)
        if kind is TensorProxy:
            known = self.values.get(value.name)
            if known is not None:
                return known  # literals are pairs
            self.values[value.name] = len(self.values)
            memory = self.memories.setdefault(value.storage, len(self.memories))
            return (value.geometry, value.dtype, value.device, value.layout, memory)
        if isinstance(value, tuple | list):
            return (kind, *[self.value(item) for item in value])
        if isinstance(value, dict):
            return (kind, *[(name, self.value(item)) for name, item in value.items()])
        if isinstance(value, slice):
            return (kind, self.value(value.start), self.value(value.stop), self.value(value.step))
        if isinstance(value, float | complex):
            return (kind, repr(value))  # zeros of both signs differ, and a NaN equals itself
        return (kind, value)
