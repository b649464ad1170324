"""The paths of tensors that a program uses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import ALIAS, TYPE
from thunder_core.checks.guard import Guard
from thunder_core.checks.plain import is_plain
from thunder_core.checks.source import (
    AttributeSource,
    Source,
)
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_frontend.observe.contents import NodeKind, node_kind
from thunder_frontend.observe.node import Node, make_node
from thunder_frontend.observe.stand_ins import NUMBER_CLASSES

_DEEPEST_SEARCH = 5
_CONTAINERS = frozenset({dict, OrderedDict, list, tuple, set, frozenset})


class TensorIndex:
    """The first path to each tensor, and to other objects without nodes.

    The paths of parameters and buffers are known from the visit of their module, those of other tensors from their
    visits. `find` searches for the path of any other tensor in the contents of all visited objects.

    Args:
        nodes, guards: of the heap; this class adds the guards of tensors.
        index_modules: creates nodes of a module and its submodules.

    Attributes:
        requested: ids of the objects whose paths the compiler requested.
    """

    def __init__(
        self, nodes: dict[int, Node], guards: list[Guard], index_modules: Callable[[torch.nn.Module, Source], None]
    ) -> None:
        self._nodes = nodes
        self._guards = guards
        self._index_modules = index_modules
        self._sources: dict[int, Source] = {}
        self._guarded: set[int] = set()
        self._tensors: list[Any] = []
        self._searched = 0  # the number of nodes
        self._gradients: dict[int, tuple[Any, Any]] = {}  # by id, with owners; ids of living objects
        self._read_gradients = 0  # the number of `_tensors` whose gradients these are
        self.requested: set[int] = set()

    def index(self, tensor: Any, source: Source) -> None:
        """Record the path of a tensor, such as a parameter; its guards are added when it is read."""
        if id(tensor) not in self._sources:
            self._sources[id(tensor)] = source
            self._tensors.append(tensor)

    def visit(self, tensor: Any, source: Source) -> None:
        """Guard a tensor that was read from ``source``."""
        key = id(tensor)
        known = self._sources.get(key)
        if known is None:
            known = self._sources[key] = source
            self._tensors.append(tensor)
        elif known is not source and known != source:
            self._guards.append(Check(source, ALIAS, known))
        if key not in self._guarded:
            self._guarded.add(key)
            self._guards.append(Check(known, TYPE, type(tensor)))

    def known(self) -> Iterator[tuple[Any, Source]]:
        """The visited tensors with their paths."""
        for tensor in {id(tensor): tensor for tensor in self._tensors}.values():
            if id(tensor) in self._guarded:
                yield tensor, self._sources[id(tensor)]

    def source(self, tensor: Any) -> Source | None:
        """The path to a tensor, if it is known without a search."""
        return self._sources.get(id(tensor))

    def find(self, value: Any) -> Source | None:
        """The path to an object that existed before the program ran, or None."""
        self.requested.add(id(value))
        source = self._known(value)
        if source is None:
            self._search()
            source = self._known(value) or self._gradient(value)
        return source

    def _known(self, value: Any) -> Source | None:
        node = self._nodes.get(id(value))
        return node.source if node is not None else self._sources.get(id(value))

    def _gradient(self, value: Any) -> Source | None:
        """The path to a tensor that is ``grad`` of another one."""
        if not isinstance(value, torch.Tensor):
            return None
        with DisableTorchFunction():
            for owner in self._tensors[self._read_gradients :]:
                if isinstance(owner, torch.Tensor) and owner.is_leaf and owner.grad is not None:
                    self._gradients.setdefault(id(owner.grad), (owner.grad, owner))
        self._read_gradients = len(self._tensors)
        if id(value) not in self._gradients:
            return None
        self.index(value, AttributeSource(self._sources[id(self._gradients[id(value)][1])], "grad"))
        return self._sources[id(value)]

    def _search(self) -> None:
        """Index the contents of the nodes that were added since the last search."""
        added = list(islice(self._nodes.values(), self._searched, None))  # nodes are never removed
        for node in added:
            self._searched += 1
            self._search_node(node, 0)

    def _search_node(self, node: Node, depth: int) -> None:
        for name, value in node.attributes.items():
            if not is_plain(value):  # sources of plain values, which most attributes have, take time to create
                self._search_value(value, node.attribute_source(name), depth)
        for _, value, source in node.items():
            self._search_value(value, source, depth)

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
        self._tensors.append(value)
        if type(value) in _CONTAINERS and not value:  # most dictionaries of modules are empty
            return
        kind = node_kind(value)
        if not isinstance(value, torch.Tensor) and kind in (NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.OBJECT):
            self._search_node(make_node(value, source, kind), depth + 1)
