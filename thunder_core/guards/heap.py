"""The part of the user's heap that was met during one observation, and the guards on it."""

from __future__ import annotations

import collections
import enum
import functools
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor
from torch.nn import Module

from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.getters import Getters
from thunder_core.guards.guard import Guard, PlainGuard, TypeGuard
from thunder_core.guards.identity_guards import IdentityGuard, SameGuard
from thunder_core.guards.node import Node, NodeKind, make_node, node_kind
from thunder_core.guards.object_guards import ObjectGuards
from thunder_core.guards.plain import ATOM_TYPES, is_plain
from thunder_core.guards.random_state import RandomStates
from thunder_core.guards.source import ConstantSource, GlobalSource, Source, is_argument
from thunder_core.guards.state_functions import state_guard
from thunder_core.guards.steps import (
    BufferSource,
    ClosureSource,
    DictionarySource,
    InstanceAttributeSource,
    ParameterSource,
    SubmoduleSource,
)
from thunder_core.guards.tensor_facts import TensorFacts
from thunder_core.guards.tensor_index import TensorIndex

_MUTABLE_KINDS = (NodeKind.OBJECT, NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET, NodeKind.MODULE)
_KEYED_TYPES = frozenset({dict, collections.OrderedDict, collections.defaultdict})
_MOST_DISTINCT = 8
UNREAD_PACKAGES = sys.stdlib_module_names | {"numpy", "thunder", "thunder_core"}
"""Packages whose variables are taken for constants."""
MODULE_SOURCES: tuple[type[DictionarySource], ...] = (ParameterSource, BufferSource, SubmoduleSource)


class Heap:
    """Objects that were met.

    Attributes:
        nodes: by id of the object.
        guards: in the order in which they were found: a path's guards come after those of its parts.
        tensors: where tensors were seen.
        objects: makes the guards of single objects.
        facts: what the program asked of tensors.
        random_states: of Python's and NumPy's generators when the observation began, or when they were met.
        getters: prebuilt getters of the ``operator`` module.
        functions: nodes of Python functions by the id of their code.
        stored_globals, stored_cells: variables that observed code rebinds, with their first values.
        stored_attributes: attributes that observed code assigns or deletes, of whatever object.
        late: paths into PyTorch whose objects are looked at when the program has run: during acquisition some of them
            are replaced.
        compares_identity: observed code compares objects by ``is``.
        wrote_arguments: the program changed an object among, or in, the arguments.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.guards: list[Guard] = []
        self.tensors = TensorIndex(self)
        self.objects = ObjectGuards(self)
        self.facts = TensorFacts()
        self.random_states = RandomStates()
        self.getters = Getters()
        self.functions: dict[int, list[Node]] = {}
        self.stored_globals: dict[tuple[int, str], tuple[GlobalSource, Any]] = {}
        self.stored_cells: dict[int, tuple[ClosureSource, Any, Any]] = {}
        self.stored_attributes: set[str] = set()
        self.late: list[Source] = []
        self.compares_identity = False
        self.wrote_arguments = False
        self._variables: set[tuple[int, str]] = set()
        self._kept: list[Any] = []

    def close(self) -> None:
        """Let go of everything."""
        self.__dict__.clear()

    def keep(self, value: Any) -> None:
        """Keep an object alive, so that its id stays its own."""
        self._kept.append(value)

    # ------------------------------------------------------------ meeting a value on a path

    def meet(self, value: Any, source: Source, *, by_key: bool = False) -> Node | None:
        """Note that ``value`` was read from ``source``: guard it; the node of an object that can be read further.

        Args:
            by_key: the caller goes on to say which entries of a dictionary are read; otherwise all of them are.
        """
        if type(value) in ATOM_TYPES or is_plain(value):
            self.guards.append(PlainGuard(source, value))
            return None
        if isinstance(value, Tensor):
            self.tensors.met(value, source)
            return None
        node = self.nodes.get(id(value))
        if node is not None:
            if node.source is not source and node.source != source:
                self.guards.append(SameGuard(source, node.source))
            if node.kind is NodeKind.DICTIONARY and not by_key:
                self.objects.read_dictionary(node)
            return node
        if type(value) is BuiltinFunctionType or isinstance(value, ModuleType):
            self.guards.append(IdentityGuard(source, value))
            return None
        return self._make(value, source, by_key)

    def _make(self, value: Any, source: Source, by_key: bool) -> Node:
        kind = node_kind(value)
        if kind is NodeKind.MODULE and not isinstance(source, MODULE_SOURCES):
            self.index_modules(value, source)
            node = self.nodes[id(value)]
        else:
            node = self.nodes[id(value)] = make_node(value, source, kind)
        if kind is NodeKind.MODULE:
            self.guard_module(node)
        elif kind is NodeKind.DICTIONARY and by_key and type(value) in _KEYED_TYPES:
            self.guards.append(TypeGuard(source, type(value)))
        elif kind is NodeKind.DICTIONARY:
            self.objects.read_dictionary(node)
        elif kind in (NodeKind.SEQUENCE, NodeKind.SET):
            self.objects.guard_container(node)
        elif kind is NodeKind.FUNCTION:
            self.objects.guard_function(node)
        elif kind is NodeKind.CLASS:
            self.guards.append(IdentityGuard(source, value))
        elif kind is NodeKind.METHOD:
            self.objects.guard_parts(node, MethodType, ("__self__", "__func__"))
        elif kind is NodeKind.PARTIAL:
            self.objects.guard_parts(node, functools.partial, ("func", "args", "keywords"))
        elif kind is NodeKind.OBJECT and is_wrapper(value):
            self.guards.append(TypeGuard(source, type(value)))
            for inner, path in self._wrapped(node):
                self.meet(inner, path)
        elif kind is NodeKind.OBJECT:
            self.guards.append(TypeGuard(source, type(value)))
            if type(value).__module__.partition(".")[0] == "torch":  # its code is not observed
                self.objects.read_everything(node)
        else:
            self.objects.guard_opaque(node)
        return node

    def index_modules(self, root: Module, source: Source) -> None:
        """Make a node of ``root`` and of every module below it, and know their tensors by path."""
        pending: list[tuple[Module, Source, Node | None]] = [(root, source, None)]
        while pending:
            module, path, parent = pending.pop()
            if id(module) in self.nodes:
                continue
            node = self.nodes[id(module)] = make_node(module, path, NodeKind.MODULE)
            node.parent = parent
            if is_wrapper(module):
                pending.extend((inner, step, node) for inner, step in self._wrapped(node) if isinstance(inner, Module))
            parameters, buffers, children = node.content
            for held, step in ((parameters, ParameterSource), (buffers, BufferSource)):
                for name, tensor in held.items():
                    if tensor is not None:
                        self.tensors.index(tensor, path, step, name)
            for name, child in reversed(children.items()):
                if child is not None:
                    pending.append((child, SubmoduleSource(path, name), node))

    # ------------------------------------------------------------ guards of one node

    def guard_module(self, node: Node) -> None:
        """What holds for every module that is reached, from the root down: its class."""
        if node.reached:
            return
        node.reached = True
        if node.parent is not None:
            self.guard_module(node.parent)
        self.guards.append(TypeGuard(node.source, type(node.object)))

    def _wrapped(self, node: Node) -> list[tuple[Any, Source]]:
        """The programs that a compiled program stands for."""
        return [
            (value, InstanceAttributeSource(node.source, name))
            for name, value in node.attributes.items()
            if name != "__wrapped__"
            and (isinstance(value, Module | FunctionType | MethodType) or (is_wrapper(value) and callable(value)))
        ]

    def tensor_node(self, tensor: Tensor, *, written: bool) -> Node | None:
        """The node of a tensor with a known path that has Python attributes, or may be given some."""
        node = self.nodes.get(id(tensor))
        if node is None and (written or tensor.__dict__) and not is_wrapper(tensor):
            source = self.tensors.source(tensor)
            if source is not None:
                node = self.nodes[id(tensor)] = make_node(tensor, source, NodeKind.OBJECT)
        return node

    def class_node(self, kind: type) -> Node | None:
        """The node of a user's class, which entries hold; None for other classes."""
        node = self.nodes.get(id(kind))
        if node is None and kind_of_class(kind) is CodeKind.USER and not issubclass(kind, enum.Enum):
            node = self.nodes[id(kind)] = make_node(kind, ConstantSource(kind, kind.__name__), NodeKind.CLASS)
        return node

    def read_global(self, key: tuple[int, str], value: Any, source: Source, *, late: bool = False) -> None:
        """Meet a variable of a Python module, once; ``late`` for functions that acquisition may have replaced."""
        if key in self._variables:
            return
        self._variables.add(key)
        told = state_guard(value)
        if told is not None:
            self.guards.append(told)
        if late and callable(value):
            self.late.append(source)
        else:
            self.meet(value, source, by_key=True)

    # ------------------------------------------------------------ at the end

    def finish(self) -> None:
        """Add the guards that could not be made while the program ran."""
        if self.compares_identity or self.wrote_arguments:
            self._guard_distinct()
            self.compares_identity = self.wrote_arguments = False
        for source in self.late:
            self.guards.append(IdentityGuard(source, source.read((), {})))
        self.late.clear()
        self.objects.finish()
        self.guards.extend(self.facts.guards(self.tensors.asked, self.tensors.find))

    def _guard_distinct(self) -> None:
        """Objects among the arguments that the program compares by identity, or writes to, must stay different ones."""
        groups: dict[type, list[Source]] = {}
        for node in self.nodes.values():
            if node.kind in _MUTABLE_KINDS and is_argument(node.source):
                groups.setdefault(type(node.object), []).append(node.source)
        if self.compares_identity:
            for tensor, source in self.tensors.arguments():
                groups.setdefault(type(tensor), []).append(source)
        for paths in groups.values():
            sources = list(dict.fromkeys(paths))
            self.guards.extend(
                SameGuard(source, other, same=False)
                for position, source in enumerate(sources[:_MOST_DISTINCT])
                for other in sources[:position]
            )


def is_wrapper(value: Any) -> bool:
    """True for a compiled program, which stands for the program that it was made from."""
    return type(value).__module__.partition(".")[0] in ("thunder", "thunder_core")
