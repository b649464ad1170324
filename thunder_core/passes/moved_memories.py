"""Memories of a trace that became parts of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size
from thunder_core.ir.tree import map_leaves


class Place(NamedTuple):
    """Where one memory lies in another.

    Attributes:
        storage: the number of the other.
        shift: bytes from its start to that of the one. In bytes, as views may have another dtype.
    """

    storage: int
    shift: Size = 0

    @classmethod
    def where(cls, old: TensorProxy, new: TensorProxy) -> Place:
        """The place of the memory of ``old`` such that both show the same elements."""
        if old.offset is new.offset and old.dtype is new.dtype:
            return cls(new.storage)  # also if it is symbolic: a difference would be another symbol
        return cls(new.storage, new.offset * new.dtype.itemsize - old.offset * old.dtype.itemsize)

    def moved(self, proxy: TensorProxy) -> TensorProxy:
        """A value of the one memory as it lies in the other."""
        distance = self.shift // proxy.dtype.itemsize
        return replace(proxy, storage=self.storage, offset=proxy.offset + distance)


class MovedMemories:
    """Where storages went. False while nothing has moved."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def move(self, old: TensorProxy, new: TensorProxy) -> None:
        """The memory of ``old`` is that of ``new`` from now on, such that both show the same elements."""
        self._places[old.storage] = Place.where(old, self.value(new))

    def value(self, leaf: Any) -> Any:
        """A proxy in the memory that it has now; other leaves as they are."""
        if type(leaf) is not TensorProxy or leaf.storage not in self._places:
            return leaf
        return self._places[leaf.storage].moved(leaf)

    def line(self, line: BoundSymbol) -> BoundSymbol:
        """A line with all its values in the memories that they have now."""
        places = self._places
        proxies = line.inputs() + line.outputs() if places else ()
        if not any(type(proxy) is TensorProxy and proxy.storage in places for proxy in proxies):
            return line
        return replace(line.map_arguments(self.value), output=map_leaves(self.value, line.output))
