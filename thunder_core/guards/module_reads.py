"""What code reads of modules: parameters, buffers, children, and the names of these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.guards.class_names import has_own_lookup
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.conditions import attributes_check
from thunder_core.guards.dynamic_reads import MISSING
from thunder_core.guards.heap import MODULE_SOURCES, Heap
from thunder_core.guards.node import Node
from thunder_core.guards.steps import DictionarySource, SubmoduleSource
from thunder_core.guards.tensor_index import same_step

if TYPE_CHECKING:
    from thunder_core.guards.following import Following

_CONTAINER_MODULES = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)


class ModuleReads:
    """Reads entries of modules by names."""

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following

    def read(self, node: Node, names: CodeNames) -> None:
        """What code reads of a module by these names."""
        wanted = names.attributes
        self._heap.guard_module(node)
        self._following.attributes_of(node, sorted(node.attributes.keys() & wanted), names)
        for content, step in zip(node.content, MODULE_SOURCES, strict=True):
            whole = step.dictionary in wanted
            if whole:
                self.guard_keys(node, step.dictionary, content)
            for name in tuple(content) if whole else sorted(content.keys() & wanted):
                self.entry(node, step, name, content[name], names)
        if isinstance(node.object, _CONTAINER_MODULES):
            for name, child in node.content[2].items():
                self.entry(node, SubmoduleSource, name, child, names)
        self._following.classes.attributes_of(node, names)
        if has_own_lookup(type(node.object)):
            self._following.computed.read(node, names)

    def guard_keys(self, node: Node, dictionary: str, content: Iterable[str]) -> None:
        """The names in one of the dictionaries of an object."""
        if dictionary not in node.edges:
            node.edges.add(dictionary)
            self._heap.guards.append(attributes_check(node.source, tuple(content), dictionary))

    def entry(self, node: Node, step: type[DictionarySource], name: str, value: Any, names: CodeNames) -> None:
        """A parameter, buffer or child of a module."""
        child = self._heap.nodes.get(id(value))
        if name not in node.edges and _holds(node.object.__dict__.get(step.dictionary), name, value):
            node.edges.add(name)
            if child is not None and child.parent is node and same_step(child.source, step, node.source, name):
                self._heap.guard_module(child)
            else:
                child = self._heap.meet(value, step(node.source, name), by_key=True)
        if names.shallow:
            return
        if child is not None:
            self._following.follow(child, names, name)
        elif value is not None:
            self._following.follow_tensor(value, names, name)


def _holds(dictionary: dict[str, Any] | None, name: str, value: Any) -> bool:
    """False for an entry that the program has overwritten before any code that could read it ran."""
    return dictionary is not None and dictionary.get(name, MISSING) is value
