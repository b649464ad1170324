"""Attributes that objects compute when they are asked for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.dynamic_reads import COMPUTED, MISSING, MODULE_ATTRIBUTES, ask
from thunder_core.guards.heap import Heap
from thunder_core.guards.node import Node, NodeKind
from thunder_core.guards.steps import AttributeSource

if TYPE_CHECKING:
    from thunder_core.guards.following import Following

_DEEPEST_COMPUTED = 3


class ComputedReads:
    """Reads attributes by asking the objects for them."""

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following

    def read(self, node: Node, names: CodeNames) -> None:
        """Names that only the class's own ``__getattr__`` or ``__getattribute__`` can answer."""
        if node.depth > _DEEPEST_COMPUTED:  # objects that make up attributes as they are asked for have no end
            return
        on_class = self._following.classes.names.of(type(node.object))
        for name in sorted(names.attributes):
            if name in node.edges or name in node.attributes or name in on_class or name.startswith("__"):
                continue
            if node.kind is NodeKind.MODULE and (
                name in MODULE_ATTRIBUTES or any(name in content for content in node.content)
            ):
                continue
            self.ask_for(node, name, names)

    def ask_for(self, node: Node, name: str, names: CodeNames) -> None:
        """An attribute as the class's own lookup answers it."""
        value = ask(node.object, name)
        if value is MISSING or value is COMPUTED:
            return
        if name in node.edges:
            known = self._heap.nodes.get(id(value))
            if known is not None:
                self._following.follow(known, names, name)
            return
        node.edges.add(name)
        self._heap.keep(value)
        child = self._heap.meet(value, AttributeSource(node.source, name), by_key=True)
        if child is not None:
            child.depth = max(child.depth, node.depth + 1)
            self._following.follow(child, names, name)
