"""Follow the names that executed code may read from the objects it can reach, and note what is found as guards.

The closure over-approximates: every name in a code object is tried on every object that is reached from the frame's
arguments, closure and globals by such names. Objects are looked at as they were when they were first met, so what the
program writes before reading it back is not guarded.
"""

from __future__ import annotations

import builtins
import collections
import functools
import sys
import weakref
from collections.abc import Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from thunder_core.guards.class_names import ClassNames, function_behind, has_own_lookup, is_descriptor
from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.guard import (
    AbsentGuard,
    ArrayGuard,
    CodeGuard,
    DistinctGuard,
    EqualGuard,
    Guard,
    IdentityGuard,
    KeysGuard,
    LengthGuard,
    NoAttributeGuard,
    NoHooksGuard,
    PlainGuard,
    SameGuard,
    TypeGuard,
    WeakIdentityGuard,
)
from thunder_core.guards.node import MODULE_DICTIONARIES, Node, NodeKind, make_node, node_kind
from thunder_core.guards.plain import ATOM_TYPES, copy_content, is_plain, is_plain_content
from thunder_core.guards.random_state import RandomStates
from thunder_core.guards.source import (
    ArgumentSource,
    AttributeSource,
    BufferSource,
    ClosureSource,
    ConstantSource,
    DictionarySource,
    EnvironmentSource,
    GlobalSource,
    InstanceAttributeSource,
    ItemSource,
    KeywordSource,
    ParameterSource,
    ReferentSource,
    Source,
    SubmoduleSource,
)
from thunder_core.guards.tensor_index import TensorIndex, same_step

MISSING = object()
_MODULE_SOURCES: tuple[type[DictionarySource], ...] = (ParameterSource, BufferSource, SubmoduleSource)
_MODULE_INTERNALS = frozenset(
    {*MODULE_DICTIONARIES, *(name for name in torch.nn.Module().__dict__ if name.startswith("_"))}
)
_CONTAINER_MODULES = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
_BUILTINS = frozenset(vars(builtins))
_MUTABLE_KINDS = (NodeKind.OBJECT, NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET, NodeKind.MODULE)
_MOST_DISTINCT = 8
_DEEPEST_FRESH = 4
_MOST_FRESH_ITEMS = 64


class Explorer:
    """The objects met during one observation and the guards on them.

    Attributes:
        nodes: by id of the object.
        guards: in the order in which they were found: a path's guards come after those of its parts.
        tensors: where tensors were seen.
        stored_globals: rebound global variables with their first values.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.guards: list[Guard] = []
        self.tensors = TensorIndex(self)
        self.late: list[Source] = []
        self.random_states = RandomStates()
        self.compares_identity = False
        self.wrote_arguments = False
        self.arrays: list[Node] = []
        self.stored_globals: dict[tuple[int, str], tuple[GlobalSource, Any]] = {}
        self.stored_cells: dict[int, tuple[ClosureSource, Any, Any]] = {}
        self.user_codes: dict[int, CodeNames] = {}
        self._class_names = ClassNames()
        self._class_edges: set[tuple[type, str]] = set()
        self._globals_seen: set[tuple[int, int]] = set()
        self._global_edges: set[tuple[Any, ...]] = set()
        self._environment: set[str] = set()
        self._functions: dict[int, list[Node]] = {}
        self._kept: list[Any] = []

    def close(self) -> None:
        """Let go of everything."""
        self.__dict__.clear()

    # ------------------------------------------------------------ meeting a value on a path

    def meet(self, value: Any, source: Source) -> Node | None:
        """Note that ``value`` was read from ``source``: guard it, or make a node of it."""
        kind = type(value)
        if kind in ATOM_TYPES or is_plain(value):
            self.guards.append(PlainGuard(source, value))
            return None
        if isinstance(value, torch.Tensor):
            self.tensors.met(value, source)
            return None
        node = self.nodes.get(id(value))
        if node is not None:
            if node.source is not source and node.source != source:
                self.guards.append(SameGuard(source, node.source))
            return node
        if kind is BuiltinFunctionType or isinstance(value, ModuleType):
            self.guards.append(IdentityGuard(source, value))
            return None
        return self._new_node(value, source)

    def _new_node(self, value: Any, source: Source) -> Node | None:
        kind = node_kind(value)
        if kind is NodeKind.MODULE and not isinstance(source, _MODULE_SOURCES):
            self._index_modules(value, source)
            node = self.nodes[id(value)]
            self._guard_module(node)
            return node
        node = make_node(value, source, kind)
        self.nodes[id(value)] = node
        if kind is NodeKind.MODULE:
            self._guard_module(node)
        elif kind in (NodeKind.SEQUENCE, NodeKind.DICTIONARY, NodeKind.SET):
            self._guard_container(node)
        elif kind is NodeKind.FUNCTION:
            self._guard_function(node)
        elif kind is NodeKind.CLASS:
            self.guards.append(IdentityGuard(source, value))
        elif kind is NodeKind.METHOD:
            self.guards.append(TypeGuard(source, MethodType))
            self.meet(value.__self__, AttributeSource(source, "__self__"))
            self.meet(value.__func__, AttributeSource(source, "__func__"))
        elif kind is NodeKind.PARTIAL:
            self.guards.append(TypeGuard(source, functools.partial))
            for name in ("func", "args", "keywords"):
                self.meet(getattr(value, name), AttributeSource(source, name))
        elif kind is NodeKind.OBJECT:
            self.guards.append(TypeGuard(source, type(value)))
            if type(value).__module__.partition(".")[0] == "torch":  # its code is not observed
                self._follow_everything(node)
        else:
            self._guard_opaque(node)
        return node

    def _index_modules(self, root: torch.nn.Module, source: Source) -> None:
        """Make a node of ``root`` and of every module below it, and know their tensors by path."""
        pending: list[tuple[torch.nn.Module, Source, Node | None]] = [(root, source, None)]
        while pending:
            module, path, parent = pending.pop()
            if id(module) in self.nodes:
                continue
            node = make_node(module, path, NodeKind.MODULE)
            node.parent = parent
            self.nodes[id(module)] = node
            parameters, buffers, children = node.content
            for names, step in ((parameters, ParameterSource), (buffers, BufferSource)):
                for name, tensor in names.items():
                    if tensor is not None:
                        self.tensors.index(tensor, path, step, name)
            for name, child in reversed(children.items()):
                if child is not None:
                    pending.append((child, SubmoduleSource(path, name), node))

    # ------------------------------------------------------------ guards of one node

    def _guard_module(self, node: Node) -> None:
        """What holds for every module that is reached: its class. Paths to it are guarded from the root down."""
        if "" in node.edges:
            return
        node.edges.add("")
        if node.parent is not None:
            self._guard_module(node.parent)
        self.guards.append(TypeGuard(node.source, type(node.object)))

    def _guard_container(self, node: Node) -> None:
        value, source = node.object, node.source
        kind = type(value)
        if is_plain_content(value):
            self.guards.append(PlainGuard(source, copy_content(value)))
            return
        self.guards.append(TypeGuard(source, kind))
        if node.kind is NodeKind.DICTIONARY:
            self.guards.append(KeysGuard(source, tuple(node.content)))
            for key, item in node.content.items():
                self.meet(item, ItemSource(source, key))
                self._guard_key(key)
        elif node.kind is NodeKind.SEQUENCE:
            self.guards.append(LengthGuard(source, len(node.content)))
            for index, item in enumerate(node.content):
                self.meet(item, ItemSource(source, index))
        else:
            self._guard_opaque(node)

    def _guard_key(self, key: Any) -> None:
        """An object that a dictionary is looked up with by identity."""
        node = self.nodes.get(id(key))
        if node is not None and node.kind is NodeKind.OBJECT:
            self._guard_opaque(node)

    def _guard_function(self, node: Node) -> None:
        function: FunctionType = node.object
        code = function.__code__
        if kind_of(code) in (CodeKind.USER, CodeKind.MODULE):
            self.guards.append(CodeGuard(node.source, code))
            self._functions.setdefault(id(code), []).append(node)
            self._kept.append(code)
            if function.__defaults__:
                self.meet(function.__defaults__, AttributeSource(node.source, "__defaults__"))
            if function.__kwdefaults__:
                self.meet(function.__kwdefaults__, AttributeSource(node.source, "__kwdefaults__"))
        else:
            self.late.append(node.source)

    def _guard_opaque(self, node: Node) -> None:
        """An object whose reads cannot be observed: equal if it says so, else the very same."""
        value, source = node.object, node.source
        kind = type(value)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            self.arrays.append(node)  # whether its content counts depends on how the program uses it
            return
        self.random_states.watch(value, source.describe())
        if isinstance(value, weakref.ref):
            self.guards.append(TypeGuard(source, kind))
            self.meet(value(), ReferentSource(source))
            return
        if has_equality(value):
            self.guards.append(EqualGuard(source, value))
            return
        try:
            reference = weakref.ref(value)
        except TypeError:
            self.guards.append(IdentityGuard(source, value))
        else:
            self.guards.append(WeakIdentityGuard(source, reference, kind.__name__))

    # ------------------------------------------------------------ following names

    def follow(self, node: Node, names: CodeNames) -> None:
        """Guard what ``names`` reads from the node, and go on from there."""
        if id(names) in node.followed:
            return
        node.followed.add(id(names))
        kind = node.kind
        if kind is NodeKind.MODULE:
            self._follow_module(node, names)
        elif kind is NodeKind.OBJECT:
            self._follow_object(node, names)
        elif kind is NodeKind.DICTIONARY:
            self._follow_items(node.content.values(), names)
            if node.attributes or type(node.object).__module__ not in ("builtins", "collections"):
                self._follow_object(node, names)
        elif kind is NodeKind.SEQUENCE:
            self._follow_items(node.content, names)
            if node.attributes or type(node.object).__module__ not in ("builtins", "collections"):
                self._follow_object(node, names)
        elif kind is NodeKind.FUNCTION:
            self._follow_attributes(node, node.attributes.keys() & names.attributes, names)
        elif kind is NodeKind.CLASS:
            self._follow_class(node, names)
        elif kind is NodeKind.METHOD:
            self._follow_items((node.object.__self__,), names)
        elif kind is NodeKind.PARTIAL:
            self._follow_items((node.object.func, node.object.args, node.object.keywords), names)

    def _follow_items(self, items: Iterable[Any], names: CodeNames) -> None:
        for item in items:
            node = self.nodes.get(id(item))
            if node is not None:
                self.follow(node, names)

    def _follow_module(self, node: Node, names: CodeNames) -> None:
        wanted = names.attributes
        attributes = node.attributes
        self._guard_module(node)
        read = attributes.keys() - _MODULE_INTERNALS if names.whole else attributes.keys() & wanted
        self._follow_attributes(node, read, names)
        for content, step, dictionary in zip(node.content, _MODULE_SOURCES, MODULE_DICTIONARIES, strict=True):
            whole = names.whole or dictionary in wanted
            if whole and dictionary not in node.edges:
                node.edges.add(dictionary)
                self.guards.append(KeysGuard(node.source, tuple(content), dictionary))
            for name in content if whole else content.keys() & wanted:
                self._module_entry(node, step, name, content[name], names)
        if isinstance(node.object, _CONTAINER_MODULES):
            for name, child in node.content[2].items():
                self._module_entry(node, SubmoduleSource, name, child, names)
        self._follow_class_attributes(node, names)
        self._follow_absent(node, names)

    def _module_entry(
        self, node: Node, step: type[DictionarySource], name: str, value: Any, names: CodeNames
    ) -> None:
        if name not in node.edges and self._is_unchanged(node, step, name, value):
            node.edges.add(name)
            child = self.nodes.get(id(value))
            if child is not None and child.parent is node and same_step(child.source, step, node.source, name):
                self._guard_module(child)
            else:
                self.meet(value, step(node.source, name))
        child = self.nodes.get(id(value))
        if child is not None and not names.shallow:
            self.follow(child, names)

    @staticmethod
    def _is_unchanged(node: Node, step: type[DictionarySource], name: str, value: Any) -> bool:
        """False for an entry that the program has overwritten before any code that could read it ran."""
        dictionary = node.object.__dict__.get(step.dictionary)
        return dictionary is not None and dictionary.get(name, MISSING) is value

    def _follow_attributes(self, node: Node, read: Iterable[str], names: CodeNames) -> None:
        """Attributes that the object holds itself."""
        attributes = node.attributes
        own = getattr(node.object, "__dict__", None)
        for name in read:
            if node.kind is NodeKind.MODULE and name in _MODULE_INTERNALS:
                continue
            value = attributes[name]
            if name not in node.edges:
                node.edges.add(name)
                if own is None or name not in own:
                    source: Source = AttributeSource(node.source, name)  # a slot, or deleted since
                    unchanged = getattr(node.object, name, MISSING) is value
                else:
                    source = InstanceAttributeSource(node.source, name)
                    unchanged = own[name] is value
                if unchanged:
                    self.meet(value, source)
            child = self.nodes.get(id(value))
            if child is not None:
                self.follow(child, names)

    def _follow_object(self, node: Node, names: CodeNames) -> None:
        attributes = node.attributes
        read = attributes.keys() if names.whole else attributes.keys() & names.attributes
        self._follow_attributes(node, tuple(read), names)
        self._follow_class_attributes(node, names)
        if has_own_lookup(type(node.object)):
            self._follow_computed(node, names)
        self._follow_absent(node, names)

    def _follow_everything(self, node: Node) -> None:
        own = getattr(node.object, "__dict__", ())
        for name, value in node.attributes.items():
            if name in node.edges:
                continue
            node.edges.add(name)
            step = InstanceAttributeSource if name in own else AttributeSource
            self.meet(value, step(node.source, name))
            child = self.nodes.get(id(value))
            if child is not None and child.kind is NodeKind.OBJECT:
                self._follow_everything(child)

    def _follow_computed(self, node: Node, names: CodeNames) -> None:
        """Names that only the class's own ``__getattr__`` or ``__getattribute__`` can answer."""
        on_class = self._class_names.of(type(node.object))
        for name in names.attributes:
            if name in node.edges or name in node.attributes or name in on_class or name.startswith("__"):
                continue
            try:
                value = getattr(node.object, name)
            except Exception:  # whatever it raises, the name is not there; absence is guarded only when probed for
                continue
            node.edges.add(name)
            self._kept.append(value)
            child = self.meet(value, AttributeSource(node.source, name))
            if child is not None:
                self.follow(child, names)

    def _follow_class_attributes(self, node: Node, names: CodeNames) -> None:
        kind = type(node.object)
        on_class = self._class_names.of(kind)
        for name in on_class.keys() & names.attributes:
            attribute = on_class[name]
            if name in node.attributes and not isinstance(attribute, property):
                continue
            if function_behind(attribute) is not None:
                self._class_function(kind, name, attribute)
                if name not in node.edges and node.kind is not NodeKind.SEQUENCE and hasattr(node.object, "__dict__"):
                    node.edges.add(name)
                    if kind.__module__.partition(".")[0] != "torch":
                        self.guards.append(AbsentGuard(node.source, name))
                continue
            if is_descriptor(attribute) or isinstance(attribute, type) or name.startswith("__"):
                continue
            if name not in node.edges:
                node.edges.add(name)
                self.meet(attribute, AttributeSource(node.source, name))
            child = self.nodes.get(id(attribute))
            if child is not None:
                self.follow(child, names)

    def _class_function(self, kind: type, name: str, attribute: Any) -> None:
        """A method: replaced on the class, it would be another program."""
        if (kind, name) in self._class_edges:
            return
        self._class_edges.add((kind, name))
        behind = function_behind(attribute)
        if behind is None:
            return
        suffix, function = behind
        if kind_of(function.__code__) is not CodeKind.USER and name != "forward":
            return
        source: Source = AttributeSource(ConstantSource(kind, kind.__name__), name)
        if suffix:
            source = AttributeSource(source, suffix)
        self.meet(function, source)

    def _follow_class(self, node: Node, names: CodeNames) -> None:
        kind = node.object
        if kind.__module__ == "builtins" or kind.__module__.partition(".")[0] == "torch":
            return
        on_class = self._class_names.of(kind)
        for name in on_class.keys() & names.attributes:
            attribute = on_class[name]
            if function_behind(attribute) is not None:
                self._class_function(kind, name, attribute)
            elif not is_descriptor(attribute) and not name.startswith("__"):
                if name not in node.edges:
                    node.edges.add(name)
                    self.meet(attribute, AttributeSource(node.source, name))
                child = self.nodes.get(id(attribute))
                if child is not None:
                    self.follow(child, names)

    def _follow_absent(self, node: Node, names: CodeNames) -> None:
        kind = type(node.object)
        on_class = self._class_names.of(kind)
        for name in names.probes:
            if name in node.edges or name in node.attributes or name in on_class:
                continue
            if node.kind is NodeKind.MODULE:
                if any(name in content for content in node.content) or hasattr(torch.nn.Module, name):
                    continue
                node.edges.add(name)
                if not hasattr(node.object, name):
                    self.guards.append(AbsentGuard(node.source, name, ("__dict__", *MODULE_DICTIONARIES)))
                    self._absent_on_class(kind, name)
            elif not hasattr(node.object, name):
                node.edges.add(name)
                self.guards.append(NoAttributeGuard(node.source, name))

    def _absent_on_class(self, kind: type, name: str) -> None:
        if (kind, name) not in self._class_edges:
            self._class_edges.add((kind, name))
            self.guards.append(NoAttributeGuard(ConstantSource(kind, kind.__name__), name))

    # ------------------------------------------------------------ what frames bring

    def module_called(self, module: torch.nn.Module) -> None:
        """A module's call was seen: its hooks and ``forward`` were read."""
        node = self.nodes.get(id(module))
        if node is None or node.called:
            return
        node.called = True
        self._guard_module(node)
        attributes = node.attributes
        hooked = [name for name in NoHooksGuard.dictionaries if attributes.get(name)]
        if not hooked and "forward" not in attributes:
            self.guards.append(NoHooksGuard(node.source))
        else:
            for name in NoHooksGuard.dictionaries:
                if name in attributes:
                    self.meet(attributes[name], InstanceAttributeSource(node.source, name))
            if "forward" in attributes:
                self.meet(attributes["forward"], InstanceAttributeSource(node.source, "forward"))
            else:
                self.guards.append(AbsentGuard(node.source, "forward"))
        kind = type(module)
        forward = self._class_names.of(kind).get("forward")
        if forward is not None:
            self._class_function(kind, "forward", forward)

    def method_entered(self, receiver: Any, code: CodeType) -> None:
        """A method of ``receiver`` runs that nobody may have named (``__len__``, ``__call__``)."""
        kind = receiver if isinstance(receiver, type) else type(receiver)
        name = code.co_name
        if (kind, name) in self._class_edges:
            return
        attribute = self._class_names.of(kind).get(name)
        if attribute is not None:
            self._class_function(kind, name, attribute)

    def method_named(self, receiver: Any, name: str) -> None:
        """The method ``name`` of ``receiver`` is about to run."""
        attribute = self._class_names.of(type(receiver)).get(name)
        if attribute is not None:
            self._class_function(type(receiver), name, attribute)

    def module_found(self, module: torch.nn.Module, source: Source) -> None:
        """A module lies at ``source``, though nothing has read it yet."""
        self._index_modules(module, source)

    def passes_module(self, source: Source) -> bool:
        """True when the path goes through a module."""
        modules = {id(node.source) for node in self.nodes.values() if node.kind is NodeKind.MODULE}
        step: Source | None = source
        while step is not None:
            if id(step) in modules:
                return True
            step = step.parent
        return False

    def handed_to_library(self, value: Any) -> None:
        """An object whose attributes code that is not observed may read."""
        node = self.nodes.get(id(value))
        if node is not None and node.kind is NodeKind.OBJECT:
            self._follow_everything(node)

    def function_entered(self, code: CodeType, names: CodeNames) -> None:
        """Closure variables of the functions with this code that were reached by a path."""
        for node in self._functions.get(id(code), ()):
            if node.called or node.object.__closure__ is None:
                continue
            node.called = True
            for index, (name, cell) in enumerate(zip(code.co_freevars, node.object.__closure__, strict=True)):
                source = ClosureSource(node.source, index, name)
                try:
                    value = cell.cell_contents
                except ValueError:  # not assigned yet
                    continue
                if name in names.stored_cells:
                    self.stored_cells.setdefault(id(cell), (source, cell, value))
                self.meet(value, source)

    def globals_read(self, code: CodeType, names: CodeNames, namespace: dict[str, Any]) -> None:
        """Globals, and attributes of Python modules, that the code names."""
        key = (id(code), id(namespace))
        if key in self._globals_seen:
            return
        self._globals_seen.add(key)
        self.compares_identity |= names.compares_identity
        self._kept.append(code)
        module = str(namespace.get("__name__", ""))
        for name in names.stored_globals:
            source = GlobalSource(module, name, namespace)
            self.stored_globals.setdefault((id(namespace), name), (source, namespace.get(name, MISSING)))
        for chain in names.chains:
            self._global_chain(chain, names, namespace, module)
        for name in names.stored_globals:
            if name in namespace:
                self._global_chain((name,), names, namespace, module, guard=False)

    def _global_chain(
        self, chain: tuple[str, ...], names: CodeNames, namespace: dict[str, Any], module: str, *, guard: bool = True
    ) -> None:
        name = chain[0]
        value = namespace.get(name, MISSING)
        if value is MISSING:
            return  # a builtin, or an error that the program will raise
        source: Source = GlobalSource(module, name, namespace)
        stored = self.stored_globals.get((id(namespace), name))
        if stored is not None and stored[1] is not value:
            guard = False  # overwritten before any code that names it ran
        self._read_once((id(namespace), name), value, source, guard=guard)
        owner = value
        for name in chain[1:]:
            if not isinstance(owner, ModuleType):
                break
            package = owner.__name__.partition(".")[0]
            value = vars(owner).get(name, MISSING)
            if value is MISSING or package in sys.stdlib_module_names or package in ("numpy", "thunder_core"):
                return
            source = AttributeSource(ConstantSource(owner, owner.__name__.replace(".", "_")), name)
            self._read_once((id(vars(owner)), name), value, source, torch_owned=package == "torch")
            owner = value
        node = self.nodes.get(id(value))
        if node is not None:
            self.follow(node, names)

    def _read_once(
        self, key: tuple[int, str], value: Any, source: Source, *, guard: bool = True, torch_owned: bool = False
    ) -> None:
        if not guard or key in self._global_edges:
            return
        self._global_edges.add(key)
        if torch_owned and callable(value):
            # While a program is acquired some of PyTorch's functions are replaced: what counts is what is there after.
            self.late.append(source)
        else:
            self.meet(value, source)

    def environment_read(self, names: CodeNames) -> None:
        """Environment variables whose names appear in code that reads the environment."""
        import os

        for name in names.environment - self._environment:
            self._environment.add(name)
            self.guards.append(PlainGuard(EnvironmentSource(name), os.environ.get(name)))

    def value_reached(self, value: Any, names: CodeNames, depth: int = 0) -> None:
        """An argument, a closure variable or a returned value: follow it, through objects that the program made."""
        kind = type(value)
        if kind in ATOM_TYPES or isinstance(value, torch.Tensor | ModuleType):
            return
        node = self.nodes.get(id(value))
        if node is not None:
            self.follow(node, names)
            return
        if depth > _DEEPEST_FRESH:
            return
        if isinstance(value, dict):
            if len(value) <= _MOST_FRESH_ITEMS:
                for item in tuple(dict.values(value)):
                    self.value_reached(item, names, depth + 1)
        elif isinstance(value, list | tuple | set | frozenset | collections.deque):
            if len(value) <= _MOST_FRESH_ITEMS:
                for item in tuple(value):
                    self.value_reached(item, names, depth + 1)
        elif kind is MethodType:
            self.value_reached(value.__self__, names, depth + 1)
        elif kind is functools.partial:
            for item in (value.func, *value.args, *value.keywords.values()):
                self.value_reached(item, names, depth + 1)
        elif node_kind(value) in (NodeKind.OBJECT, NodeKind.MODULE):
            own = getattr(value, "__dict__", None)
            if own:
                for name in own.keys() if names.whole else own.keys() & names.attributes:
                    self.value_reached(own[name], names, depth + 1)

    def _guard_distinct(self) -> None:
        """Objects among the arguments that the program compares by identity, or writes to, must stay different ones."""
        groups: dict[type, list[Source]] = {}
        for node in self.nodes.values():
            if node.kind in _MUTABLE_KINDS and _is_argument(node.source):
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

    def finish(self) -> None:
        """Guards that could not be made while the program ran."""
        if self.compares_identity or self.wrote_arguments:
            self._guard_distinct()
            self.compares_identity = self.wrote_arguments = False
        for source in self.late:
            value = source.read((), {})
            kind = node_kind(value) if callable(value) else None
            self.guards.append(IdentityGuard(source, value) if kind else PlainGuard(source, value))
        self.late.clear()
        for node in self.arrays:
            self.guards.append(ArrayGuard.of(node.source, node.object, content=id(node.object) not in self.tensors.asked))
        self.arrays.clear()


def has_equality(value: Any) -> bool:
    """True for a hashable object whose class defines what equality means, as a truth value."""
    kind = type(value)
    if kind.__eq__ is object.__eq__ or kind.__hash__ is None or kind.__hash__ is object.__hash__:
        return False
    try:
        return (value == value) is True
    except (TypeError, ValueError, RuntimeError):
        return False


def _is_argument(source: Source) -> bool:
    return isinstance(source.root, ArgumentSource | KeywordSource)
