"""Storages of a trace that a pass places inside other storages."""

from __future__ import annotations

from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.geometry import StoragePosition
from thunder_core.ir.proxy import TensorProxy


class MovedStorages:
    """The positions of moved storages. False while none has moved."""

    def __init__(self) -> None:
        self._positions: dict[int, StoragePosition] = {}

    def __bool__(self) -> bool:
        return bool(self._positions)

    def move(self, old: TensorProxy, new: TensorProxy) -> None:
        """Place the storage of ``old`` in that of ``new``, such that both tensors have the same elements."""
        self._positions[old.storage] = StoragePosition.between(old, self.value(new))

    def value(self, leaf: Any) -> Any:
        """A proxy in its current storage; other leaves unchanged."""
        if type(leaf) is not TensorProxy or leaf.storage not in self._positions:
            return leaf
        return self._positions[leaf.storage].moved(leaf)

    def op(self, op: BoundSymbol) -> BoundSymbol:
        """An op with all its values in their current storages."""
        positions = self._positions
        proxies = op.proxies() if positions else ()
        if not any(type(proxy) is TensorProxy and proxy.storage in positions for proxy in proxies):
            return op
        return op.map_leaves(self.value)
