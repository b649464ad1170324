"""The part of the user's heap that was met during one observation, and the guards on it."""

from __future__ import annotations

import array
import collections
import contextvars
import enum
import functools
import sys
import weakref
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from torch import Tensor
from torch.nn import Module

from thunder_core.guards.code_kinds import CodeKind, kind_of, kind_of_class
from thunder_core.guards.guard import (
    CodeGuard,
    DistinctGuard,
    EqualGuard,
    Guard,
    IdentityGuard,
    PlainGuard,
    SameGuard,
    TypeGuard,
    WeakIdentityGuard,
)
from thunder_core.guards.node import Node, NodeKind, make_node, node_kind
from thunder_core.guards.plain import ATOM_TYPES, copy_content, is_plain, is_plain_content
from thunder_core.guards.random_state import RandomStates
from thunder_core.guards.source import (
    ArgumentSource,
    ConstantSource,
    GlobalSource,
    KeywordSource,
    Source,
)
from thunder_core.guards.steps import (
    AttributeSource,
    BufferSource,
    ClosureSource,
    ContextSource,
    DictionarySource,
    InstanceAttributeSource,
    ItemSource,
    ParameterSource,
    ReferentSource,
    SubmoduleSource,
)
from thunder_core.guards.structure_guards import (
    ArrayGuard,
    KeysGuard,
    LengthGuard,
    NoItemGuard,
)
from thunder_core.guards.tensor_index import TensorIndex

_MUTABLE_KINDS = (NodeKind.OBJECT, NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET, NodeKind.MODULE)
_KEYED_TYPES = frozenset({dict, collections.OrderedDict, collections.defaultdict})
_MISSING = object()
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
        random_states: of Python's and NumPy's generators when the observation began, or when they were met.
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
        self.random_states = RandomStates()
        self.functions: dict[int, list[Node]] = {}
        self.stored_globals: dict[tuple[int, str], tuple[GlobalSource, Any]] = {}
        self.stored_cells: dict[int, tuple[ClosureSource, Any, Any]] = {}
        self.stored_attributes: set[str] = set()
        self.late: list[Source] = []
        self.compares_identity = False
        self.wrote_arguments = False
        self._variables: set[tuple[int, str]] = set()
        self._arrays: list[Node] = []
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
                self.read_dictionary(node)
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
            self.read_dictionary(node)
        elif kind in (NodeKind.SEQUENCE, NodeKind.SET):
            self._guard_container(node)
        elif kind is NodeKind.FUNCTION:
            self._guard_function(node)
        elif kind is NodeKind.CLASS:
            self.guards.append(IdentityGuard(source, value))
        elif kind is NodeKind.METHOD:
            self._guard_parts(node, MethodType, ("__self__", "__func__"))
        elif kind is NodeKind.PARTIAL:
            self._guard_parts(node, functools.partial, ("func", "args", "keywords"))
        elif kind is NodeKind.OBJECT and is_wrapper(value):
            self.guards.append(TypeGuard(source, type(value)))
            for inner, path in self._wrapped(node):
                self.meet(inner, path)
        elif kind is NodeKind.OBJECT:
            self.guards.append(TypeGuard(source, type(value)))
            if type(value).__module__.partition(".")[0] == "torch":  # its code is not observed
                self.read_everything(node)
        else:
            self.guard_opaque(node)
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
            if isinstance(value, Module | FunctionType | MethodType) and name != "__wrapped__"
        ]

    def _guard_container(self, node: Node) -> None:
        value, source = node.object, node.source
        if is_plain_content(value):
            self.guards.append(PlainGuard(source, copy_content(value)))
            self._note_nested(node)
            return
        self.guards.append(TypeGuard(source, type(value)))
        if node.kind is NodeKind.SEQUENCE:
            self.guards.append(LengthGuard(source, len(node.content)))
            for index, item in enumerate(node.content):
                self.meet(item, ItemSource(source, index))
        else:
            self.guard_opaque(node)

    def _note_nested(self, node: Node) -> None:
        """Make nodes of the containers in one that is guarded as a whole, so that writes to them are seen."""
        items = node.content.items() if node.kind is NodeKind.DICTIONARY else enumerate(node.content)
        for key, item in items:
            if type(item) in (list, dict, set, tuple) and id(item) not in self.nodes:
                nested = make_node(item, ItemSource(node.source, key), node_kind(item))
                nested.reached = True
                self.nodes[id(item)] = nested
                if nested.kind is not NodeKind.SET:
                    self._note_nested(nested)

    def read_dictionary(self, node: Node) -> None:
        """Guard the whole content of a dictionary."""
        if node.reached:
            return
        node.reached = True
        if type(node.object) is dict and is_plain_content(node.content):
            self.guards.append(PlainGuard(node.source, copy_content(node.content)))
            self._note_nested(node)
            return
        self.guards.append(TypeGuard(node.source, type(node.object)))
        self.guards.append(KeysGuard(node.source, tuple(node.content)))
        for key, item in node.content.items():
            if key not in node.asked_keys:
                node.asked_keys.add(key)
                self.meet(item, ItemSource(node.source, key))
            self._guard_key(key)

    def read_entry(self, node: Node, key: Any) -> None:
        """Guard one entry of a dictionary, or that it is not there."""
        if node.reached or key in node.asked_keys:
            return
        node.asked_keys.add(key)
        if key not in node.content:
            if key not in node.object:  # else written before it could be read
                self.guards.append(NoItemGuard(node.source, key))
        elif dict.get(node.object, key, _MISSING) is node.content[key]:  # else overwritten before it could be read
            self.meet(node.content[key], ItemSource(node.source, key), by_key=True)

    def _guard_key(self, key: Any) -> None:
        """An object that a dictionary is looked up with by identity."""
        node = self.nodes.get(id(key))
        if node is not None and node.kind is NodeKind.OBJECT:
            self.guard_opaque(node)

    def _guard_function(self, node: Node) -> None:
        function: FunctionType = node.object
        code = function.__code__
        if kind_of(code) not in (CodeKind.USER, CodeKind.MODULE):
            self.guards.append(IdentityGuard(node.source, function))
            return
        self.guards.append(CodeGuard(node.source, code))
        self.functions.setdefault(id(code), []).append(node)
        self.keep(code)
        for name in ("__defaults__", "__kwdefaults__"):
            value = getattr(function, name)
            if value:
                self.meet(value, AttributeSource(node.source, name))

    def _guard_parts(self, node: Node, kind: type, names: tuple[str, ...]) -> None:
        self.guards.append(TypeGuard(node.source, kind))
        for name in names:
            self.meet(getattr(node.object, name), AttributeSource(node.source, name))

    def guard_opaque(self, node: Node) -> None:
        """An object whose reads cannot be observed: equal if it says so, else the very same."""
        value, source = node.object, node.source
        kind = type(value)
        self.random_states.watch(value, source.describe())
        if isinstance(value, weakref.ref):
            self.guards.append(TypeGuard(source, kind))
            self.meet(value(), ReferentSource(source))
            return
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            self._arrays.append(node)  # whether its content counts depends on how the program uses it
            return
        if isinstance(value, MappingProxyType):
            self._read_mapping(node)
            return
        if isinstance(value, bytearray | array.array):
            self.guards.append(EqualGuard(source, value[:]))
            return
        if isinstance(value, contextvars.ContextVar):
            self._read_context(node)
        if has_equality(value):
            self.guards.append(EqualGuard(source, value))
            return
        try:
            reference = weakref.ref(value)
        except TypeError:
            self.guards.append(IdentityGuard(source, value))
        else:
            self.guards.append(WeakIdentityGuard(source, reference, kind.__name__))

    def _read_mapping(self, node: Node) -> None:
        """A read-only view of a dictionary."""
        self.guards.append(TypeGuard(node.source, type(node.object)))
        self.guards.append(KeysGuard(node.source, tuple(node.object)))
        for key, item in node.object.items():
            self.meet(item, ItemSource(node.source, key))

    def _read_context(self, node: Node) -> None:
        """The value of a context variable."""
        value = node.object.get(None)
        self.keep(value)
        self.meet(value, ContextSource(node.source))

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
        if late and callable(value):
            self.late.append(source)
        else:
            self.meet(value, source, by_key=True)

    def read_everything(self, node: Node) -> None:
        """Guard every attribute of an object, and of the objects below it."""
        own = getattr(node.object, "__dict__", ())
        for name, value in node.attributes.items():
            if name in node.edges:
                continue
            node.edges.add(name)
            step = InstanceAttributeSource if name in own else AttributeSource
            child = self.meet(value, step(node.source, name))
            if child is not None and child.kind is NodeKind.OBJECT:
                self.read_everything(child)

    # ------------------------------------------------------------ at the end

    def finish(self) -> None:
        """Add the guards that could not be made while the program ran."""
        if self.compares_identity or self.wrote_arguments:
            self._guard_distinct()
            self.compares_identity = self.wrote_arguments = False
        for source in self.late:
            self.guards.append(IdentityGuard(source, source.read((), {})))
        self.late.clear()
        for node in self._arrays:
            lifted = id(node.object) in self.tensors.asked
            self.guards.append(ArrayGuard.of(node.source, node.object, content=not lifted))
        self._arrays.clear()

    def _guard_distinct(self) -> None:
        """Objects among the arguments that the program compares by identity, or writes to, must stay different ones."""
        groups: dict[type, list[Source]] = {}
        for node in self.nodes.values():
            if node.kind in _MUTABLE_KINDS and is_argument(node.source):
                groups.setdefault(type(node.object), []).append(node.source)
        if self.compares_identity:
            for tensor, source in self.tensors.arguments():
                groups.setdefault(type(tensor), []).append(source)
        for sources in groups.values():
            self.guards.extend(
                DistinctGuard(source, other)
                for position, source in enumerate(sources[:_MOST_DISTINCT])
                for other in sources[:position]
            )

    def passes_module(self, source: Source) -> bool:
        """True when the path goes through a module."""
        modules = {id(node.source) for node in self.nodes.values() if node.kind is NodeKind.MODULE}
        step: Source | None = source
        while step is not None:
            if id(step) in modules:
                return True
            step = step.parent
        return False


def module_variable(module: ModuleType, name: str) -> Source:
    """The path to a variable of a Python module, which entries hold."""
    return AttributeSource(ConstantSource(module, module.__name__.replace(".", "_")), name)


def is_wrapper(value: Any) -> bool:
    """True for a compiled program, which stands for the program that it was made from."""
    return type(value).__module__.partition(".")[0] in ("thunder", "thunder_core")


def has_equality(value: Any) -> bool:
    """True for a hashable object whose class defines what equality means, as a truth value."""
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__ or kind.__hash__ in (None, object.__hash__):
        return False
    try:
        return (value == value) is True
    except (TypeError, ValueError, RuntimeError):
        return False


def is_argument(source: Source) -> bool:
    """True for a path that begins at an argument."""
    return isinstance(source.root, ArgumentSource | KeywordSource)
