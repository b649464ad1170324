"""Values of a program in place of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy


class Renaming:
    """Tensors that take the place of others. Views of these become views of the new tensors."""

    def __init__(self) -> None:
        self._values: dict[str, TensorProxy] = {}
        self._storages: dict[int, int] = {}

    def replace(self, old: TensorProxy, new: TensorProxy) -> None:
        """``new`` takes the place of ``old``, at the same offset of its storage."""
        self._values[old.name] = new
        self._storages[old.storage] = new.storage

    def value(self, leaf: Any) -> Any:
        """The new value of a leaf of an op."""
        if not isinstance(leaf, TensorProxy):
            return leaf
        if leaf.name in self._values:
            return self._values[leaf.name]
        storage = self._storages.get(leaf.storage)
        return leaf if storage is None else replace(leaf, storage=storage)

    def op(self, op: BoundSymbol) -> BoundSymbol:
        """The op on the new values."""
        if not self._values:
            return op
        mutates = tuple([self._values[name].name if name in self._values else name for name in op.effects.mutates])
        return replace(op.map_leaves(self.value), effects=replace(op.effects, mutates=mutates))
