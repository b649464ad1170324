"""Where the tensors that a program uses come from."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import torch

from thunder_core.guards.check import Check
from thunder_core.guards.conditions import ALIAS, TYPE
from thunder_core.guards.guard import Guard
from thunder_core.guards.node import Node, NodeKind, node_kind, own_attributes
from thunder_core.guards.plain import is_plain
from thunder_core.guards.source import Source
from thunder_core.guards.stand_ins import NUMBER_CLASSES
from thunder_core.guards.steps import (
    AttributeSource,
    DictionarySource,
    InstanceAttributeSource,
    StepSource,
    item_source,
)
from thunder_core.guards.stored_content import stored_items
from thunder_core.pytorch_internals import DisableTorchFunction

_DEEPEST_SEARCH = 5


def same_step(source: Source, step: type[StepSource], base: Source, name: Any) -> bool:
    """True when ``source`` is ``step(base, name)``."""
    return type(source) is step and source.base is base and getattr(source, "name", None) == name


class TensorIndex:
    """Tensors, and other objects that are no nodes, by id; the first path to each wins.

    Parameters and buffers are known as soon as their module is; other tensors when a path to them is read. What is
    still unknown when somebody asks is searched for below everything that was met.

    Args:
        nodes, guards: of the heap; those of tensors are added to the guards.
        index_modules: makes nodes of a module and of those below it.

    Attributes:
        asked: ids of objects whose path somebody asked for.
    """

    def __init__(
        self, nodes: dict[int, Node], guards: list[Guard], index_modules: Callable[[torch.nn.Module, Source], None]
    ) -> None:
        self._nodes = nodes
        self._guards = guards
        self._index_modules = index_modules
        self._sources: dict[int, Source] = {}
        self._guarded: set[int] = set()
        self._kept: list[Any] = []
        self._searched: set[int] = set()
        self.asked: set[int] = set()

    def index(self, tensor: Any, base: Source, step: type[DictionarySource | AttributeSource], name: str) -> None:
        """A parameter or buffer, say; no guard is made until it is read."""
        if id(tensor) not in self._sources:
            self._sources[id(tensor)] = step(base, name)
            self._kept.append(tensor)

    def met(self, tensor: Any, source: Source) -> None:
        """A tensor was read from ``source``."""
        key = id(tensor)
        known = self._sources.get(key)
        if known is None:
            known = self._sources[key] = source
            self._kept.append(tensor)
        elif known is not source and known != source:
            self._guards.append(Check(source, ALIAS, known))
        if key not in self._guarded:
            self._guarded.add(key)
            self._guards.append(Check(known, TYPE, type(tensor)))

    def known(self) -> Iterator[tuple[Any, Source]]:
        """Tensors that were met, with their paths."""
        for tensor in {id(tensor): tensor for tensor in self._kept}.values():
            if id(tensor) in self._guarded:
                yield tensor, self._sources[id(tensor)]

    def source(self, tensor: Any) -> Source | None:
        """The path to a tensor, if it is known by now."""
        return self._sources.get(id(tensor))

    def find(self, value: Any) -> Source | None:
        """The path to an object that existed before the program ran, or None."""
        self.asked.add(id(value))
        found = self._known(value)
        if found is None:
            self._search()
            found = self._known(value) or self._gradient(value)
        return found

    def _known(self, value: Any) -> Source | None:
        node = self._nodes.get(id(value))
        return node.source if node is not None else self._sources.get(id(value))

    def _gradient(self, value: Any) -> Source | None:
        """The path to a tensor that is ``grad`` of another one."""
        if not isinstance(value, torch.Tensor):
            return None
        with DisableTorchFunction():
            tensors = [each for each in self._kept if isinstance(each, torch.Tensor) and each.is_leaf]
            owner = next((each for each in tensors if each.grad is value), None)
        if owner is not None:
            self.index(value, self._sources[id(owner)], AttributeSource, "grad")
            return self._sources[id(value)]
        return None

    def _search(self) -> None:
        """Index what lies below the nodes that were added since the last search."""
        nodes = self._nodes
        for key, node in tuple(nodes.items()):
            if key not in self._searched:
                self._searched.add(key)
                self._search_node(node)

    def _search_node(self, node: Node) -> None:
        for name, value in node.attributes.items():
            own = getattr(node.object, "__dict__", ())
            step = InstanceAttributeSource if name in own else AttributeSource
            self._search_value(value, step(node.source, name), 0)
        if node.kind is NodeKind.DICTIONARY:
            for key, value in node.content.items():
                self._search_value(value, item_source(node.object, node.source, key), 0)
        elif node.kind is NodeKind.SEQUENCE:
            for index, value in enumerate(node.content):
                self._search_value(value, item_source(node.object, node.source, index), 0)

    def _search_value(self, value: Any, source: Source, depth: int) -> None:
        key = id(value)
        if (
            is_plain(value)
            or type(value) in NUMBER_CLASSES
            or key in self._nodes
            or key in self._sources
            or depth > _DEEPEST_SEARCH
        ):
            return
        if isinstance(value, torch.nn.Module):
            self._index_modules(value, source)
            return
        self._sources[key] = source
        self._kept.append(value)
        if isinstance(value, torch.Tensor):
            return
        if isinstance(value, dict):
            for name, item in tuple(dict.items(value)):
                self._search_value(item, item_source(value, source, name), depth + 1)
        elif isinstance(value, list | tuple | collections.deque):
            for index, item in enumerate(stored_items(value)):
                self._search_value(item, item_source(value, source, index), depth + 1)
        elif node_kind(value) is NodeKind.OBJECT:
            for name, item in own_attributes(value).items():
                self._search_value(item, AttributeSource(source, name), depth + 1)
