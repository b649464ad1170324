"""The Python objects that one observation visited, and the guards on them."""

from __future__ import annotations

import builtins
import collections
import enum
import sys
from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from types import ModuleType
from typing import Any

from torch import Generator, Size, Tensor
from torch.nn import Module

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import (
    ALIAS,
    BUILTINS,
    CLASS_ATTRIBUTE_NAMES,
    IDENTITY,
    LENGTH,
    NOT_SHADOWED,
    TYPE,
    VALUE,
    identity_check,
    is_replaced,
)
from thunder_core.checks.global_state import ORIGINAL_BUILTINS, state_guard
from thunder_core.checks.originals import ORIGINAL, is_compiled, original_of
from thunder_core.checks.plain import ATOM_TYPES, is_plain
from thunder_core.checks.source import (
    AttributeSource,
    ConstantSource,
    HeldSource,
    ItemSource,
    ResultSource,
    Source,
    StoredAttributeSource,
    global_source,
)
from thunder_core.checks.stored_attributes import PROXIES
from thunder_core.tracing.frames import PACKAGES, CodeKind, is_installed, kind_of_class
from thunder_frontend.observe.contents import MODULE_DICTIONARIES, NodeKind, node_kind
from thunder_frontend.observe.node import Node, make_node
from thunder_frontend.observe.object_guards import ObjectGuards
from thunder_frontend.observe.records import Records
from thunder_frontend.observe.stand_ins import FUNCTIONS_OF_C, StandIn, StandIns

_KEYED_TYPES = frozenset({dict, list, collections.OrderedDict, collections.defaultdict})
"""Containers of which code may read single items."""
_LIBRARIES = sys.stdlib_module_names | {"mpmath", "numpy", "sympy"}


def is_library(package: str) -> bool:
    """Whether a package is a library of which recording replaces functions, or whose modules are not read whole."""
    return package == "torch" or package in _LIBRARIES or package in PACKAGES


def is_namespace_of_package(value: Any) -> bool:
    """Whether a dictionary has the variables of PyTorch or an unread package: recording replaces some of them.

    So its content is neither that of before nor a write of the program. An example is ``__builtins__``, which `exec`
    and `eval` add to their globals.
    """
    name = value.get("__name__") if type(value) is dict else None
    if type(name) is not str or not is_library(name.partition(".")[0]):
        return False
    module = sys.modules.get(name)
    return isinstance(module, ModuleType) and vars(module) is value


class Heap(Records):
    """Creates nodes and guards of the objects that an observation visits.

    Attributes:
        objects: creates guards by kind of object.
    """

    def __init__(
        self, stand_in: StandIn | None = None, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        super().__init__(StandIns(stand_in, args, kwargs or {}, self._holder), self.index_modules)
        self.objects = ObjectGuards(self)
        self._variables: dict[tuple[int, str], Source] = {}

    # ------------------------------------------------------------ visits

    def visit(self, value: Any, source: Source, *, by_key: bool = False) -> Node | None:
        held, value = value, self.stand_ins.original(value)
        if type(value) in PROXIES:  # before any `isinstance`, which asks the object behind it
            return self._visit_proxy(value, source)
        if held is not value and type(value) in (tuple, Size) and is_plain(value):
            self.guards += [Check(source, TYPE, type(value)), Check(source, LENGTH, len(value))]
            self.distinct.rebuilt.append((value, source))
            for index, item in enumerate(held):
                self.visit(item, ItemSource(source, index))
            return None
        if type(value) in ATOM_TYPES or is_plain(value):
            varies = source in self.stand_ins.numbers
            if varies and held is not value:
                # the conditions on symbolic sizes include this number
                self.guards.append(Check(source, TYPE, type(value)))
            else:
                self.guards.append(Check(source, VALUE, value))
                self.stand_ins.lost_number |= varies
            return self._enum_node(value, source) if isinstance(value, enum.Enum) else None
        self.objects.guard_class_definition(value if isinstance(value, type) else type(value))
        if isinstance(value, Tensor):
            self.tensors.visit(value, source)
            return None
        original = original_of(value)
        if original is not None:
            return self._visit_compiled(value, original, source)
        node = self.nodes.get(id(value))
        if node is not None:
            if node.source is not source and node.source != source:
                self.guards.append(Check(source, ALIAS, node.source))
                if isinstance(value, tuple) and held is value is not self.stand_ins.tuple_at(node.source, value):
                    self._guard_numbers(value, source)
            if not by_key:
                self.objects.guard_content(node)
            return node
        if isinstance(value, ModuleType) or is_namespace_of_package(value):
            self.guards.append(Check(source, IDENTITY, value))
            return None
        if type(value) in FUNCTIONS_OF_C:
            self.guards.append(Check(source, IDENTITY, value))
            self.getters.visit_function(value)
            if held is value:
                self.stand_ins.visit(value, source)
            self.visit_receiver(value, source)
            return None
        if is_compiled(value) and not callable(value):  # an object of Thunder, to which the program does not write
            self.guards.append(identity_check(source, value))
            return None
        return self._make(value, source, by_key)

    def _visit_proxy(self, proxy: Any, source: Source) -> Node:
        node = self.nodes.get(id(proxy))
        if node is None:
            return self._make(proxy, source, by_key=True)
        if node.source != source:
            self.guards.append(Check(source, ALIAS, node.source))
        return node

    def _guard_numbers(self, value: tuple[Any, ...], source: Source) -> None:
        """Guard the numbers of a tuple at a path where they are not replaced, unlike at another path to it."""
        for index, item in enumerate(value):
            if type(item) in (int, float) or isinstance(item, tuple):
                self.visit(item, ItemSource(source, index))

    def visit_receiver(self, function: Any, source: Source) -> None:
        receiver = getattr(function, "__self__", None)
        if receiver is not None and not isinstance(receiver, ModuleType | type):
            if isinstance(receiver, Generator):
                self.generators.visit_method(function.__name__)
            self.watch(receiver, source)
            self.visit(receiver, AttributeSource(source, "__self__"))

    def _enum_node(self, member: enum.Enum, source: Source) -> Node:
        """The node of a member of an enumeration."""
        node = self.nodes.get(id(member))
        if node is None:
            node = self.nodes[id(member)] = make_node(member, source, NodeKind.OBJECT)
        return node

    def _make(self, value: Any, source: Source, by_key: bool) -> Node:
        kind = node_kind(value)
        if kind is NodeKind.MODULE and not _is_part_of_module(source):
            self.index_modules(value, source)
            node = self.nodes[id(value)]
        else:
            node = self.nodes[id(value)] = make_node(value, source, kind)
        if not (by_key and type(value) in _KEYED_TYPES):
            getattr(self.objects, kind.guard)(node)
        return node

    def _visit_compiled(self, module: Module, original: Module, source: Source) -> Node | None:
        """Visit a compiled module. It shares all attributes with its original, and so the node."""
        self.guards.append(Check(source, TYPE, type(module)))
        self.keep(module)
        node = self.visit(original, AttributeSource(source, ORIGINAL))
        if node is not None:
            self.nodes[id(module)] = node
        return node

    def index_modules(self, root: Module, source: Source) -> None:
        """Create nodes of a module and its submodules, and index their tensors."""
        pending: list[tuple[Module, Source, Node | None]] = [(root, source, None)]
        compiled: list[tuple[Module, Module]] = []
        while pending:
            module, path, parent = pending.pop()
            if id(module) in self.nodes:
                continue
            original = original_of(module)
            if original is not None:
                compiled.append((module, original))
                pending.append((original, AttributeSource(path, ORIGINAL), parent))
                continue
            node = self.nodes[id(module)] = make_node(module, path, NodeKind.MODULE)
            node.parent = parent
            *tensors, children = node.dictionaries
            for held, dictionary in zip(tensors, MODULE_DICTIONARIES, strict=False):
                for name, tensor in held.items():
                    if tensor is not None:
                        self.tensors.index(tensor, StoredAttributeSource(path, name, dictionary))
            for name, child in reversed(children.items()):
                if child is not None:
                    pending.append((child, StoredAttributeSource(path, name, "_modules"), node))
        for module, original in compiled:
            self.keep(module)
            self.nodes[id(module)] = self.nodes[id(original)]

    # ------------------------------------------------------------ other nodes

    def tensor_node(self, tensor: Tensor, *, written: bool) -> Node | None:
        """The node of a tensor with a known path that has Python attributes, or to which code may assign some."""
        node = self.nodes.get(id(tensor))
        if node is None and (written or tensor.__dict__) and not is_compiled(tensor):
            source = self.tensors.source(tensor)
            if source is not None:
                node = self.nodes[id(tensor)] = make_node(tensor, source, NodeKind.OBJECT)
        return node

    def class_node(self, kind: type) -> Node | None:
        """The node of a class of the user; None for other classes, and for those that the program has made."""
        node = self.nodes.get(id(kind))
        of_user = node is None and kind_of_class(kind) is CodeKind.USER and not issubclass(kind, enum.Enum)
        if of_user and not self.made_classes.has(kind):
            node = self.nodes[id(kind)] = make_node(kind, ConstantSource(kind, kind.__name__), NodeKind.CLASS)
        return node

    @property
    def variables_read(self) -> list[tuple[int, str, Source]]:
        """The global variables that were visited: the id of their dictionary, their name and path."""
        return [(namespace, name, source) for (namespace, name), source in self._variables.items()]

    def read_global(self, key: tuple[int, str], value: Any, source: Source, *, late: bool = False) -> None:
        """Visit a variable of a Python module, once; ``late`` for functions that recording may have replaced."""
        if key in self._variables:
            return
        self._variables[key] = source
        guard = state_guard(value)
        if guard is not None:
            self.guards.append(guard)
        if late and callable(value):
            self.late.append(source)
        else:
            self.visit(value, source, by_key=True)

    def may_assign(self, namespace: dict[str, Any], names: Iterable[str]) -> None:
        """Also read the builtins with the names of variables of the Python module, which code may delete."""
        super().may_assign(namespace, names)
        held = vars(builtins)
        for name in sorted(name for name in names if name in held and name in namespace):
            self.read_global((id(held), name), held[name], global_source(held, name), late=True)

    # ------------------------------------------------------------ the end of the observation

    def without_stand_ins(self) -> None:
        """Replace stand-ins by their originals, also in the recorded contents of nodes."""
        self.stand_ins.restore()
        if self.stand_ins.any:
            self._forget_stand_ins()

    def forget_overwritten(self) -> None:
        """Replace the overwritten stand-ins in the recorded contents of nodes, after the writes were determined."""
        if self.stand_ins.overwritten:
            self.stand_ins.overwritten.clear()
            self._forget_stand_ins()

    def _forget_stand_ins(self) -> None:
        stand_ins = self.stand_ins
        for node in (*self.distinct_nodes(), *self.variables.values()):
            node.recorded = tuple([_originals(content, stand_ins) for content in node.recorded])

    def _holder(self, source: Source) -> Any:
        """The object that was read from a path."""
        if isinstance(source, HeldSource):
            return source.value
        return next((node.object for node in self.nodes.values() if node.source == source), None)

    def finish(self) -> None:
        """Add the guards that could not be created while the program ran."""
        for source in self.late:
            self.guards.append(Check(source, IDENTITY, source.read((), {})))
        self.late.clear()
        for node in self.late_classes:
            self.guards.append(Check(node.source, CLASS_ATTRIBUTE_NAMES, frozenset(vars(node.object))))
        self.late_classes.clear()
        self._guard_builtins()
        self.guards.extend(self.environment.guards())
        self.guards.extend(self.state_reads.guards())
        self.objects.finish()
        self.guards.extend(self.distinct.guards(self.distinct_nodes(), self.tensors))
        self.guards.extend(self.facts.guards(self.tensors.requested, self.tensors.find))

    def _guard_builtins(self) -> None:
        """Guard the builtins in code, and that Python modules, except installed ones, do not shadow them."""
        named = sorted(set().union(*[names for _, names in self.builtins_read.values()]) & ORIGINAL_BUILTINS.keys())
        if named:
            read = partial(itemgetter(*named, named[0]), vars(builtins))  # a tuple, also of one
            originals = tuple([ORIGINAL_BUILTINS[name] for name in (*named, named[0])])
            values = zip(read(), originals, strict=True)
            expected = tuple([value if is_replaced(value, original) else original for value, original in values])
            self.guards.append(Check(ResultSource(ConstantSource(read, "builtins")), BUILTINS, expected))
        for namespace, names in self.builtins_read.values():
            if not is_installed(str(namespace.get("__file__", ""))):
                name = str(namespace.get("__name__", "")).rpartition(".")[2]
                self.guards.append(
                    Check(ConstantSource(namespace, f"globals_of_{name}"), NOT_SHADOWED, frozenset(names))
                )
        self.builtins_read.clear()


def _originals(content: Any, stand_ins: StandIns) -> Any:
    """The contents of a node with the originals of stand-ins."""
    if isinstance(content, dict):
        return {key: stand_ins.before(value) for key, value in content.items()}
    if isinstance(content, tuple):
        return tuple(map(stand_ins.before, content))
    return content


def _is_part_of_module(source: Source) -> bool:
    return isinstance(source, StoredAttributeSource) and source.dictionary in MODULE_DICTIONARIES
