"""Memories of a trace that became parts of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Dimension, TensorProxy
from thunder_core.ir.tree import map_leaves


class MovedMemories:
    """Where storages went: the number of another, and a distance in elements. False while nothing has moved."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, Dimension]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def move(self, old: TensorProxy, new: TensorProxy) -> None:
        """The memory of ``old`` is that of ``new`` from now on, such that both show the same elements."""
        new = self.value(new)
        self._places[old.storage] = new.storage, new.offset - old.offset

    def value(self, leaf: Any) -> Any:
        """A proxy in the memory that it has now; other leaves as they are."""
        if type(leaf) is not TensorProxy or leaf.storage not in self._places:
            return leaf
        storage, distance = self._places[leaf.storage]
        return replace(leaf, storage=storage, offset=leaf.offset + distance)

    def line(self, line: BoundSymbol) -> BoundSymbol:
        """A line with all its values in the memories that they have now."""
        places = self._places
        proxies = line.inputs() + line.outputs() if places else ()
        if not any(type(proxy) is TensorProxy and proxy.storage in places for proxy in proxies):
            return line
        return replace(line.map_arguments(self.value), output=map_leaves(self.value, line.output))
