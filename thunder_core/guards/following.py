"""Follow the names that executed code may read from the objects it can reach.

The closure over-approximates: every name in a code object is tried on every object that is reached from the frame's
arguments, closure and globals by such names. Objects are looked at as they were when they were first met, so what the
program writes before reading it back is not guarded.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable
from types import MethodType, ModuleType
from typing import Any

import torch

from thunder_core.guards.class_names import ClassNames, function_behind, has_own_lookup, is_descriptor
from thunder_core.guards.code_kinds import CodeKind, kind_of, kind_of_class
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.heap import MODULE_SOURCES, UNREAD_PACKAGES, Heap, is_wrapper, module_variable
from thunder_core.guards.node import MODULE_DICTIONARIES, Node, NodeKind, node_kind
from thunder_core.guards.plain import ATOM_TYPES
from thunder_core.guards.source import (
    ConstantSource,
    Source,
)
from thunder_core.guards.steps import (
    AttributeSource,
    DictionarySource,
    InstanceAttributeSource,
    ItemSource,
    SubmoduleSource,
)
from thunder_core.guards.structure_guards import (
    AbsentGuard,
    KeysGuard,
    NoAttributeGuard,
)
from thunder_core.guards.tensor_index import same_step

_MISSING = object()
_MODULE_INTERNALS = frozenset(
    {*MODULE_DICTIONARIES, *(name for name in torch.nn.Module().__dict__ if name.startswith("_"))}
)
_MODULE_ATTRIBUTES = frozenset(dir(torch.nn.Module))
_CONTAINER_MODULES = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
_PLAIN_CONTAINER_MODULES = ("builtins", "collections")
_DEEPEST_FRESH = 4
_DEEPEST_COMPUTED = 3
_MOST_FRESH_ITEMS = 64


class Following:
    """Reads objects by names; what is found goes to the heap's guards.

    Objects carry a label when they are followed: the variable or attribute that they were reached through, None when
    that is not known. It restricts names that are asked of one object only (``getattr(config, "flag", None)``).
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._class_names = ClassNames()
        self._class_edges: set[tuple[type, str]] = set()

    def follow(self, node: Node, names: CodeNames, label: str | None) -> None:
        """Guard what ``names`` reads from the node, and go on from there."""
        if is_wrapper(node.object):
            self.follow_all(tuple(node.attributes.values()), names, label)
            return
        if names.probes or names.whole:
            self._follow_dynamic(node, names, label)
        if node.kind is NodeKind.DICTIONARY:
            self._follow_dictionary(node, names, label)
        if id(names) in node.followed:
            return
        node.followed.add(id(names))
        kind = node.kind
        if kind is NodeKind.MODULE:
            self._follow_module(node, names)
        elif kind is NodeKind.OBJECT:
            self._follow_object(node, names)
        elif kind is NodeKind.DICTIONARY or kind is NodeKind.SEQUENCE:
            if kind is NodeKind.SEQUENCE:
                self.follow_all(node.content, names)
            if type(node.object).__module__ not in _PLAIN_CONTAINER_MODULES:
                self._follow_object(node, names)
        elif kind is NodeKind.FUNCTION or kind is NodeKind.OPAQUE:
            self._follow_attributes(node, node.attributes.keys() & names.attributes, names)
        elif kind is NodeKind.CLASS:
            self._follow_class(node, names)
        elif kind is NodeKind.METHOD:
            self.follow_all((node.object.__self__,), names)
        elif kind is NodeKind.PARTIAL:
            self.follow_all((node.object.func, node.object.args, node.object.keywords), names)

    def follow_all(self, values: Iterable[Any], names: CodeNames, label: str | None = None) -> None:
        """Follow those of the values that are nodes."""
        nodes = self._heap.nodes
        for value in values:
            node = nodes.get(id(value))
            if node is not None:
                self.follow(node, names, label)

    def reach(self, value: Any, names: CodeNames, label: str | None, depth: int = 0) -> None:
        """An argument, a closure variable or a returned value: follow it, through objects that the program made."""
        kind = type(value)
        if kind in ATOM_TYPES:
            return
        if isinstance(value, torch.Tensor):
            self._follow_tensor(value, names, label)
            return
        node = self._heap.nodes.get(id(value))
        if node is not None:
            self.follow(node, names, label)
            return
        if isinstance(value, type):
            self.follow_type(value, names)
            return
        if isinstance(value, ModuleType):
            self.follow_python_module(value, names.attributes, names)
            return
        if depth > _DEEPEST_FRESH:
            return
        for name, item in _parts_of_fresh(value, names, label):
            self.reach(item, names, name, depth + 1)

    def _follow_tensor(self, tensor: torch.Tensor, names: CodeNames, label: str | None) -> None:
        """Python attributes that were put on a tensor; what a tensor has by itself is no business of guards."""
        probed = bool(names.probes) and any(not hasattr(torch.Tensor, name) for name in names.probed(label))
        node = self._heap.tensor_node(tensor, written=bool(names.stored_attributes) or probed)
        if node is None:
            return
        self._follow_attributes(node, node.attributes.keys() & names.attributes, names)
        for name in names.probed(label) if probed else ():
            if name not in node.edges and name not in node.attributes and not hasattr(type(tensor), name):
                node.edges.add(name)
                self._heap.guards.append(AbsentGuard(node.source, name))

    def _follow_dictionary(self, node: Node, names: CodeNames, label: str | None) -> None:
        """The entries that the code asks for; the rest of the content is followed when it was read."""
        keys = names.keys_of(label)
        if keys is None or type(node.object).__module__ not in _PLAIN_CONTAINER_MODULES:
            self._heap.objects.read_dictionary(node)
            if (id(names), None) not in node.asked:
                node.asked.add((id(names), None))
                self.follow_all(node.content.values(), names)
            return
        for key in keys:
            self._heap.objects.read_entry(node, key)
            if key in node.content:
                self.follow_all((node.content[key],), names, f"[{key!r}]")

    def follow_python_module(self, module: ModuleType, wanted: Iterable[str], names: CodeNames) -> None:
        """Variables of a Python module that is reached as an object."""
        held, package = vars(module), module.__name__.partition(".")[0]
        if package in UNREAD_PACKAGES:
            return
        for name in held.keys() & wanted:
            value = held[name]
            self._heap.read_global((id(held), name), value, module_variable(module, name), late=package == "torch")
            self.follow_all((value,), names, name)

    # ------------------------------------------------------------ modules

    def _follow_module(self, node: Node, names: CodeNames) -> None:
        wanted = names.attributes
        self._heap.guard_module(node)
        self._follow_attributes(node, node.attributes.keys() & wanted, names)
        for content, step in zip(node.content, MODULE_SOURCES, strict=True):
            whole = step.dictionary in wanted
            if whole:
                self._guard_keys(node, step.dictionary, content)
            for name in tuple(content) if whole else content.keys() & wanted:
                self._module_entry(node, step, name, content[name], names)
        if isinstance(node.object, _CONTAINER_MODULES):
            for name, child in node.content[2].items():
                self._module_entry(node, SubmoduleSource, name, child, names)
        self._follow_class_attributes(node, names)
        if has_own_lookup(type(node.object)):
            self._follow_computed(node, names)

    def _guard_keys(self, node: Node, dictionary: str, content: Iterable[str]) -> None:
        if dictionary not in node.edges:
            node.edges.add(dictionary)
            self._heap.guards.append(KeysGuard(node.source, tuple(content), dictionary))

    def _module_entry(self, node: Node, step: type[DictionarySource], name: str, value: Any, names: CodeNames) -> None:
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
            self.follow(child, names, name)
        elif value is not None:
            self._follow_tensor(value, names, name)

    # ------------------------------------------------------------ objects

    def _follow_object(self, node: Node, names: CodeNames) -> None:
        self._follow_attributes(node, node.attributes.keys() & names.attributes, names)
        self._follow_class_attributes(node, names)
        if has_own_lookup(type(node.object)):
            self._follow_computed(node, names)

    def _follow_attributes(self, node: Node, read: Iterable[str], names: CodeNames, *, labelled: bool = True) -> None:
        """Attributes that the object holds itself; not labelled when they may be asked for otherwise than by name."""
        own = getattr(node.object, "__dict__", None)
        for name in read:
            if name in _MODULE_INTERNALS and node.kind is NodeKind.MODULE:
                continue
            value = node.attributes[name]
            child = self._heap.nodes.get(id(value))
            if name not in node.edges:
                node.edges.add(name)
                source: Source
                if own is not None and name in own:
                    source, unchanged = InstanceAttributeSource(node.source, name), own[name] is value
                else:  # in a slot, or deleted since
                    source = AttributeSource(node.source, name)
                    unchanged = getattr(node.object, name, _MISSING) is value
                if unchanged:
                    child = self._heap.meet(value, source, by_key=True)
            if isinstance(value, ModuleType):
                self.follow_python_module(value, names.attributes, names)
            if child is not None:
                self.follow(child, names, name if labelled else None)
            elif isinstance(value, torch.Tensor):
                self._follow_tensor(value, names, name if labelled else None)
            now = own.get(name, value) if own is not None else value
            if now is not value:  # the program has put another object there
                self.follow_all((now,), names, name)

    def _follow_computed(self, node: Node, names: CodeNames) -> None:
        """Names that only the class's own ``__getattr__`` or ``__getattribute__`` can answer."""
        if node.depth > _DEEPEST_COMPUTED:  # objects that make up attributes as they are asked for have no end
            return
        on_class = self._class_names.of(type(node.object))
        for name in names.attributes:
            if name in node.edges or name in node.attributes or name in on_class or name.startswith("__"):
                continue
            if node.kind is NodeKind.MODULE and (
                name in _MODULE_ATTRIBUTES or any(name in content for content in node.content)
            ):
                continue
            value = _ask(node.object, name)
            if value is _MISSING:
                continue
            node.edges.add(name)
            self._heap.keep(value)
            child = self._heap.meet(value, AttributeSource(node.source, name), by_key=True)
            if child is not None:
                child.depth = max(child.depth, node.depth + 1)
                self.follow(child, names, name)

    # ------------------------------------------------------------ classes

    def _follow_class_attributes(self, node: Node, names: CodeNames) -> None:
        kind = type(node.object)
        if names.asks_class:
            self.follow_type(kind, names)
        on_class = self._class_names.of(kind)
        for name in on_class.keys() & names.attributes:
            attribute = on_class[name]
            if name in node.attributes and not isinstance(attribute, property):
                continue
            if function_behind(attribute) is not None:
                self.class_function(kind, name, attribute)
                self._guard_not_overridden(node, name)
            elif not (is_descriptor(attribute) or isinstance(attribute, type) or name.startswith("__")):
                self._class_value(node, name, attribute, names)
            elif _is_user_descriptor(attribute):
                self._descriptor(kind, name, attribute, names)

    def follow_type(self, kind: type, names: CodeNames) -> None:
        """A class that code reaches through its instances: ``type(self)``, ``self.__class__``, ``cls``."""
        node = self._heap.class_node(kind)
        if node is not None:
            self.follow(node, names, None)

    def _descriptor(self, kind: type, name: str, attribute: Any, names: CodeNames) -> None:
        """A descriptor of the user's: its code is observed when it runs, its own state is reached from the class."""
        if (kind, name) not in self._class_edges:
            self._class_edges.add((kind, name))
            owner = next(base for base in kind.__mro__ if name in base.__dict__)
            held = AttributeSource(ConstantSource(owner, owner.__name__), "__dict__")
            self._heap.meet(attribute, ItemSource(held, name))

    def _guard_not_overridden(self, node: Node, name: str) -> None:
        """A method that the object itself does not replace; PyTorch's own modules have only ``forward`` checked."""
        if name in node.edges or (name == "forward" and node.called):
            return
        if name != "forward" and type(node.object).__module__.partition(".")[0] == "torch":
            return
        node.edges.add(name)
        if hasattr(node.object, "__dict__"):
            self._heap.guards.append(AbsentGuard(node.source, name))

    def _class_value(self, node: Node, name: str, attribute: Any, names: CodeNames) -> None:
        if name not in node.edges:
            node.edges.add(name)
            self._heap.meet(attribute, AttributeSource(node.source, name), by_key=True)
        self.follow_all((attribute,), names, name)

    def _follow_class(self, node: Node, names: CodeNames) -> None:
        kind = node.object
        on_class = self._class_names.of(kind)
        for name in on_class.keys() & names.attributes:
            attribute = on_class[name]
            if function_behind(attribute) is not None:
                self.class_function(kind, name, attribute)
            elif is_descriptor(attribute) or name.startswith("__"):
                continue
            elif node.attributes.get(name, attribute) is attribute:  # else overwritten before it could be read
                self._class_value(node, name, attribute, names)

    def class_function(self, kind: type, name: str, attribute: Any = None) -> None:
        """A method: replaced on the class, it would be another program."""
        if (kind, name) in self._class_edges:
            return
        self._class_edges.add((kind, name))
        behind = function_behind(attribute or self._class_names.of(kind).get(name))
        if behind is None:
            return
        suffix, function = behind
        if kind_of(function.__code__) is not CodeKind.USER and name != "forward":
            return
        source: Source = AttributeSource(ConstantSource(kind, kind.__name__), name)
        self._heap.meet(function, AttributeSource(source, suffix) if suffix else source)

    # ------------------------------------------------------------ names asked of one object

    def _follow_dynamic(self, node: Node, names: CodeNames, label: str | None) -> None:
        key = (id(names), label)
        if key in node.asked:
            return
        node.asked.add(key)
        if names.reads_whole(label):
            self._follow_whole(node, names)
        for name in names.probed(label):
            if name not in node.edges and name not in node.attributes:
                self._probe(node, name)

    def _follow_whole(self, node: Node, names: CodeNames) -> None:
        if node.kind not in (NodeKind.MODULE, NodeKind.OBJECT):
            return
        self._follow_attributes(node, tuple(node.attributes), names, labelled=False)
        own = getattr(node.object, "__dict__", None)
        if own is not None and own.keys() >= node.attributes.keys():
            self._guard_keys(node, "__dict__", (*node.attributes, *(MODULE_DICTIONARIES if node.content else ())))
        if node.kind is NodeKind.MODULE:
            for content, step in zip(node.content, MODULE_SOURCES, strict=True):
                self._guard_keys(node, step.dictionary, content)
                for name, value in content.items():
                    self._module_entry(node, step, name, value, names)

    def _probe(self, node: Node, name: str) -> None:
        """Guard that the object has no such attribute."""
        kind = type(node.object)
        if name in self._class_names.of(kind):
            return
        if node.kind is NodeKind.MODULE:
            if name in _MODULE_ATTRIBUTES or any(name in content for content in node.content):
                return
            if _ask(node.object, name) is _MISSING:
                node.edges.add(name)
                self._heap.guards.append(AbsentGuard(node.source, name, ("__dict__", *MODULE_DICTIONARIES)))
                self._absent_on_class(kind, name)
        elif _ask(node.object, name) is _MISSING:
            node.edges.add(name)
            self._heap.guards.append(NoAttributeGuard(node.source, name))

    def _absent_on_class(self, kind: type, name: str) -> None:
        if (kind, name) not in self._class_edges:
            self._class_edges.add((kind, name))
            self._heap.guards.append(NoAttributeGuard(ConstantSource(kind, kind.__name__), name))


def _ask(value: Any, name: str) -> Any:
    """The attribute, computed by the object's class; a marker when there is none, whatever the class says about it."""
    try:
        return getattr(value, name)
    except Exception:  # noqa: BLE001  the user's code may raise anything, and would raise it again in the program
        return _MISSING


def _is_user_descriptor(attribute: Any) -> bool:
    return hasattr(type(attribute), "__get__") and kind_of_class(type(attribute)) is CodeKind.USER


def _holds(dictionary: dict[str, Any] | None, name: str, value: Any) -> bool:
    """False for an entry that the program has overwritten before any code that could read it ran."""
    return dictionary is not None and dictionary.get(name, _MISSING) is value


def _parts_of_fresh(value: Any, names: CodeNames, label: str | None) -> Iterable[tuple[str | None, Any]]:
    """What code may read from an object that the program made, with labels."""
    kind = type(value)
    if isinstance(value, dict):
        items = tuple(dict.values(value))
    elif isinstance(value, list | tuple | set | frozenset | collections.deque):
        items = tuple(value)
    elif kind is MethodType:
        items = (value.__self__,)
    elif kind is functools.partial:
        items = (value.func, *value.args, *value.keywords.values())
    elif node_kind(value) in (NodeKind.OBJECT, NodeKind.MODULE):
        own = getattr(value, "__dict__", None) or {}
        read = own.keys() if names.reads_whole(label) else own.keys() & names.attributes
        return [(name, own[name]) for name in tuple(read)]
    else:
        return ()
    return [(None, item) for item in items] if len(items) <= _MOST_FRESH_ITEMS else ()
