"""The lowered lines of one call, carried over to an equal call with other names."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.tree import map_leaves


class Renaming:
    """From the values of ``model`` to those of ``bound``; values that only the lowered lines know get new names.

    Args:
        taken: names that new values must not have.
        first_storage: number of the first new storage; by default one that is free in ``bound``.
    """

    def __init__(
        self, model: BoundSymbol, bound: BoundSymbol, taken: Collection[str], first_storage: int | None
    ) -> None:
        self.bound = bound
        self.proxies: dict[str, Proxy] = {}
        self.storages: dict[int, int] = {}
        pairs = [*zip(model.inputs(), bound.inputs(), strict=True), *zip(model.outputs(), bound.outputs(), strict=True)]
        for old, new in pairs:
            self.proxies[old.name] = new
            if isinstance(old, TensorProxy) and isinstance(new, TensorProxy):
                self.storages[old.storage] = new.storage
        self.taken = taken  # read only: copying it for each line would take quadratic time
        self.own = {new.name for _, new in pairs}
        self.stem = next((proxy.name for proxy in bound.outputs()), bound.symbol.name.rpartition(".")[2])
        self.count = 0
        self.next_storage = first_storage if first_storage is not None else 1 + max(self.storages.values(), default=-1)

    def apply(self, parts: tuple[BoundSymbol, ...]) -> tuple[BoundSymbol, ...]:
        """The lines with the new names, and the context and location of ``bound``."""
        return tuple([self._line(part) for part in parts])

    def _line(self, part: BoundSymbol) -> BoundSymbol:
        args, kwargs = map_leaves(self._leaf, part.args), map_leaves(self._leaf, part.kwargs)
        effects = part.effects
        if effects.mutates:
            mutates = tuple(self.proxies[name].name for name in effects.mutates)
            effects = Effects(mutates, effects.random, effects.external)
        return BoundSymbol(
            part.symbol,
            args,
            kwargs,
            map_leaves(self._leaf, part.output),
            effects,
            self.bound.context,
            self.bound.location,
        )

    def _leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, PROXY_TYPES):
            return leaf
        known = self.proxies.get(leaf.name)
        if known is None:
            known = self.proxies[leaf.name] = self._new(leaf)
        return known

    def _new(self, proxy: Proxy) -> Proxy:
        while True:
            self.count += 1
            name = f"{self.stem}_{self.count}"
            if name not in self.taken and name not in self.own:
                break
        if not isinstance(proxy, TensorProxy):
            return replace(proxy, name=name)
        if proxy.storage not in self.storages:
            self.storages[proxy.storage] = self.next_storage
            self.next_storage += 1
        return replace(proxy, name=name, storage=self.storages[proxy.storage])
