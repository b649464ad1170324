"""Lines and names of the joint trace under construction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.moved_memories import Place


class JointEmitter:
    """Collects lines, and instantiates those of derivatives.

    Attributes:
        lines: the lines so far.
        builder: gives names and storages that are new to the trace.
        context: modes of the joint trace: those of ``trace``, without recording of gradients.
    """

    def __init__(self, trace: Trace) -> None:
        self.lines: list[BoundSymbol] = []
        self.context = replace(trace.context, grad_enabled=False)
        self.builder = Builder.of(trace, bodies=False)

    def add(self, bound: BoundSymbol) -> None:
        """Append one line as it is."""
        self.lines.append(bound)

    def line(self, line: BoundSymbol, user: BoundSymbol | None = None) -> BoundSymbol:
        """A line under its own modes but without recording of gradients; at the place of ``user`` if given."""
        location = line.location if user is None else user.location
        context = None if line.context is None else replace(line.context, grad_enabled=False)
        return replace(line, context=None if context == self.context else context, location=location)

    def instantiate(
        self,
        lines: Iterable[BoundSymbol],
        known: Mapping[str, Proxy],
        storages: dict[int, Place],
        stem: str,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Proxy]:
        """Append lines of a derivative.

        Args:
            known: what stands for values that exist already, by their name in the derivative.
            storages: where memories of the derivative lie in the trace, by their numbers; new ones are added.
            stem: of the names of new values.
            names: names wanted for certain values.

        Returns:
            All values by their name in the derivative.
        """
        values = dict(known)

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, PROXY_TYPES):
                return leaf
            found = values.get(leaf.name)
            if found is None:
                found = values[leaf.name] = self._new(leaf, storages, stem, names or {})
            return found

        for line in lines:
            effects = line.effects
            line = replace(line.map_arguments(value), output=map_leaves(value, line.output), effects=effects)
            self.lines.append(line)
        return values

    def _new(self, proxy: Proxy, storages: dict[int, Place], stem: str, names: Mapping[str, str]) -> Proxy:
        wanted = names.get(proxy.name)
        name = self.builder.name(stem, numbered=True) if wanted is None else self.builder.name(wanted)
        if not isinstance(proxy, TensorProxy):
            return replace(proxy, name=name)
        if proxy.storage not in storages:
            storages[proxy.storage] = Place(self.builder.new_storage())
        return replace(storages[proxy.storage].moved(proxy), name=name)
