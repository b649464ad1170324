"""The part of the user's heap that was met during one observation, and the guards on it."""

from __future__ import annotations

import abc
import collections
import enum
import os
import sys
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from torch import Generator, Tensor
from torch.nn import Module

from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.compiled_modules import ORIGINAL, original_of
from thunder_core.guards.conditions import (
    ALIAS,
    IDENTITY,
    NOT_SHADOWED,
    OWN_NAMES,
    TYPE,
    VALUE,
    identity_check,
    own_names,
)
from thunder_core.guards.global_state import state_guard
from thunder_core.guards.lookups import defined_names_checks
from thunder_core.guards.node import PARTS, Node, NodeKind, make_node, node_kind
from thunder_core.guards.object_guards import ObjectGuards
from thunder_core.guards.plain import ATOM_TYPES, is_plain
from thunder_core.guards.records import Records
from thunder_core.guards.source import ConstantSource, FunctionSource, Source
from thunder_core.guards.stand_ins import FUNCTIONS_OF_C, StandIn, StandIns
from thunder_core.guards.steps import (
    AttributeSource,
    BufferSource,
    DictionarySource,
    InstanceAttributeSource,
    ParameterSource,
    SubmoduleSource,
)

_KEYED_TYPES = frozenset({dict, collections.OrderedDict, collections.defaultdict})
UNREAD_PACKAGES = sys.stdlib_module_names | {"mpmath", "numpy", "sympy", "thunder", "thunder_core"}
"""Packages whose variables are taken for constants."""
MODULE_SOURCES: tuple[type[DictionarySource], ...] = (ParameterSource, BufferSource, SubmoduleSource)

GUARDED_APART: Final[set[str]] = set()
"""Classes of PyTorch, as ``"module:class"``, of whose objects a plugin guards what programs depend on."""


class Heap(Records):
    """Makes nodes and guards of objects as they are met.

    Attributes:
        objects: makes the guards of single objects.
    """

    def __init__(
        self, stand_in: StandIn | None = None, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        super().__init__(StandIns(stand_in, args, kwargs or {}, self._holder), self.index_modules)
        self.objects = ObjectGuards(self, self.meet, self.meet_receiver)
        self._variables: set[tuple[int, str]] = set()
        self._classes: set[type] = set()

    # ------------------------------------------------------------ meeting a value on a path

    def meet(self, value: Any, source: Source, *, by_key: bool = False) -> Node | None:
        """Note that ``value`` was read from ``source``: guard it; the node of an object that can be read further.

        Args:
            by_key: the caller goes on to say which entries of a dictionary are read; otherwise all of them are.
        """
        held, value = value, self.stand_ins.original(value)
        if type(value) in ATOM_TYPES or is_plain(value):
            if held is not value and source in self.stand_ins.numbers:
                self.guards.append(Check(source, TYPE, type(value)))  # facts about sizes say what has to hold of ints
            else:
                self.guards.append(Check(source, VALUE, value))
            return self._enum_node(value, source) if isinstance(value, enum.Enum) else None
        self._guard_class(value if isinstance(value, type) else type(value))
        if isinstance(value, Tensor):
            self.tensors.met(value, source)
            return None
        original = original_of(value)
        if original is not None:
            return self._meet_compiled(value, original, source)
        node = self.nodes.get(id(value))
        if node is not None:
            if node.source is not source and node.source != source:
                self.guards.append(Check(source, ALIAS, node.source))
            if node.kind is NodeKind.DICTIONARY and not by_key:
                self.objects.read_dictionary(node)
            elif node.kind is NodeKind.SEQUENCE and not by_key:
                self.objects.guard_container(node)
            return node
        if type(value) in FUNCTIONS_OF_C or isinstance(value, ModuleType):
            self.guards.append(Check(source, IDENTITY, value))
            self.getters.met_function(value)
            if held is value:
                self.stand_ins.met(value, source)
            self.meet_receiver(value, source)
            return None
        if is_wrapper(value) and not callable(value):  # Thunder's own records, which the program does not write to
            self.guards.append(identity_check(source, value))
            return None
        return self._make(value, source, by_key)

    def meet_receiver(self, function: Any, source: Source) -> None:
        """Meet the object whose builtin method ``function`` may be: the method reads and writes it without a frame."""
        receiver = getattr(function, "__self__", None)
        if receiver is not None and not isinstance(receiver, ModuleType | type):
            if isinstance(receiver, Generator):
                self.generators.method_met(function.__name__)
            self.watch(receiver, source)
            self.meet(receiver, AttributeSource(source, "__self__"))

    def _enum_node(self, member: enum.Enum, source: Source) -> Node | None:
        """The node of a member of an enumeration that has attributes beside its name and its value."""
        if all(name.startswith("_") for name in vars(member)):
            return None
        node = self.nodes.get(id(member))
        if node is None:
            node = self.nodes[id(member)] = make_node(member, source, NodeKind.OBJECT)
        return node

    def _make(self, value: Any, source: Source, by_key: bool) -> Node:
        kind = node_kind(value)
        if kind is NodeKind.MODULE and not isinstance(source, MODULE_SOURCES):
            self.index_modules(value, source)
            node = self.nodes[id(value)]
        else:
            node = self.nodes[id(value)] = make_node(value, source, kind)
        if kind in (NodeKind.METHOD, NodeKind.OBJECT):
            self.watch(value, source)
        if kind is NodeKind.MODULE:
            self.guard_module(node)
        elif kind is NodeKind.DICTIONARY and by_key and type(value) in _KEYED_TYPES:
            self.guards.append(Check(source, TYPE, type(value)))
        elif kind is NodeKind.DICTIONARY:
            self.objects.read_dictionary(node)
        elif kind is NodeKind.SEQUENCE and by_key and type(value) is list:
            self.guards.append(Check(source, TYPE, list))
        elif kind in (NodeKind.SEQUENCE, NodeKind.SET):
            self.objects.guard_container(node)
        elif kind is NodeKind.FUNCTION:
            self.objects.guard_function(node)
        elif kind is NodeKind.CLASS:
            self.guards.append(Check(source, IDENTITY, value))
            self.met_abstract |= isinstance(value, abc.ABCMeta) and kind_of_class(value) is CodeKind.USER
        elif kind is NodeKind.METHOD:
            self.objects.guard_parts(node, MethodType, ("__self__", "__func__"))
        elif kind is NodeKind.PARTIAL:
            self.objects.guard_parts(node, type(value), PARTS[type(value)])
        elif kind is NodeKind.OBJECT and is_wrapper(value):
            self.guards.append(Check(source, TYPE, type(value)))
            for inner, path in self._wrapped(node):
                self.meet(inner, path)
        elif kind is NodeKind.OBJECT:
            self.guards.append(Check(source, TYPE, type(value)))
            if any(f"{base.__module__}:{base.__qualname__}" in GUARDED_APART for base in type(value).__mro__):
                self.guards.append(identity_check(source, value))
            elif type(value).__module__.partition(".")[0] == "torch":  # its code is not observed
                self.objects.read_everything(node)
        else:
            self.objects.guard_opaque(node)
        return node

    def _meet_compiled(self, module: Module, original: Module, source: Source) -> Node | None:
        """A compiled module was read: its node is the original's, with which it shares all attributes."""
        self.guards.append(Check(source, TYPE, type(module)))
        self.keep(module)
        node = self.meet(original, AttributeSource(source, ORIGINAL))
        if node is not None:
            self.nodes[id(module)] = node
        return node

    def index_modules(self, root: Module, source: Source) -> None:
        """Make a node of ``root`` and of every module below it, and know their tensors by path."""
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
            parameters, buffers, children = node.content
            for held, step in ((parameters, ParameterSource), (buffers, BufferSource)):
                for name, tensor in held.items():
                    if tensor is not None:
                        self.tensors.index(tensor, path, step, name)
            for name, child in reversed(children.items()):
                if child is not None:
                    pending.append((child, SubmoduleSource(path, name), node))
        for module, original in compiled:
            self.keep(module)
            self.nodes[id(module)] = self.nodes[id(original)]

    # ------------------------------------------------------------ guards of one node

    def _guard_class(self, kind: type) -> None:
        """What the class defines, once: it was met, or an object of it."""
        if kind not in self._classes:
            self._classes.add(kind)
            self.guards.extend(defined_names_checks(kind))

    def guard_module(self, node: Node) -> None:
        """What holds for every module that is reached, from the root down: its class."""
        if node.reached:
            return
        node.reached = True
        if node.parent is not None:
            self.guard_module(node.parent)
        self.guards.append(Check(node.source, TYPE, type(node.object)))
        self._guard_class(type(node.object))

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

    def without_stand_ins(self) -> None:
        """Put back what stand-ins stand for, also in what is known of objects that were met meanwhile."""
        self.stand_ins.restore()
        if self.stand_ins.any:
            self._forget_stand_ins()

    def forget_overwritten(self) -> None:
        """Put back the rest in what is known of objects, which writes were told from what stands there now by."""
        if self.stand_ins.overwritten:
            self.stand_ins.overwritten.clear()
            self._forget_stand_ins()

    def _forget_stand_ins(self) -> None:
        stand_ins = self.stand_ins
        for node in self.distinct_nodes():
            node.attributes = _originals(node.attributes, stand_ins)
            node.content = _originals(node.content, stand_ins)
        for key, (path, before) in self.stored_globals.items():
            self.stored_globals[key] = (path, stand_ins.before(before))
        for identity, (closure, cell, before) in self.stored_cells.items():
            self.stored_cells[identity] = (closure, cell, stand_ins.before(before))

    def _holder(self, source: Source) -> Any:
        """The object that was met on a path."""
        if isinstance(source, ConstantSource | FunctionSource):
            return source.read((), {})
        return next((node.object for node in self.nodes.values() if node.source == source), None)

    def finish(self) -> None:
        """Add the guards that could not be made while the program ran."""
        for source in self.late:
            self.guards.append(Check(source, IDENTITY, source.read((), {})))
        self.late.clear()
        for node in self.late_classes:
            self.guards.append(Check(node.source, OWN_NAMES, own_names(node.object)))
        self.late_classes.clear()
        self._guard_builtins()
        self.guards.extend(self.environment.guards())
        self.guards.extend(self.levels.guards())
        self.objects.finish()
        self.guards.extend(self.distinct.guards(self.distinct_nodes(), self.tensors))
        self.guards.extend(self.facts.guards(self.tensors.asked, self.tensors.find))

    def _guard_builtins(self) -> None:
        """Nobody shadows a builtin in the user's own modules; those of installed packages stay as they are."""
        for namespace, names in self.builtins_read.values():
            if f"{os.sep}site-packages{os.sep}" not in str(namespace.get("__file__", "")):
                name = str(namespace.get("__name__", "")).rpartition(".")[2]
                self.guards.append(
                    Check(ConstantSource(namespace, f"globals_of_{name}"), NOT_SHADOWED, frozenset(names))
                )
        self.builtins_read.clear()


def _originals(content: Any, stand_ins: StandIns) -> Any:
    """What a node holds, without stand-ins."""
    if isinstance(content, dict):
        return {key: stand_ins.before(value) for key, value in content.items()}
    if isinstance(content, tuple):
        return tuple(map(stand_ins.before, content))
    return content


def is_wrapper(value: Any) -> bool:
    """True for a compiled program, which stands for the program that it was made from."""
    return type(value).__module__.partition(".")[0] in ("thunder", "thunder_core")
