"""Follow the names that executed code may read from the objects it can reach.

The closure over-approximates: every name in a code object is tried on every object that is reached from the frame's
arguments, closure and globals by such names. Objects are looked at as they were when they were first met, so what the
program writes before reading it back is not guarded.

`Following` goes from object to object. What it reads of classes, of modules, of attributes that objects compute, and of
those whose names code computes or whose absence it may notice, has a class each.
"""

from __future__ import annotations

import collections
import functools
import inspect
import weakref
from collections.abc import Iterable
from dataclasses import replace
from types import MethodType, ModuleType
from typing import Any

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of, kind_of_class
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.conditions import NO_ATTRIBUTE, OWN_NAMES, attributes_check, not_its_own, own_names
from thunder_core.guards.heap import MODULE_SOURCES, UNREAD_PACKAGES, Heap, is_wrapper
from thunder_core.guards.lookups import (
    COMPUTED,
    ClassNames,
    ask,
    constant_behind,
    function_behind,
    has_own_lookup,
    is_descriptor,
    may_be_asked,
    replaces_lookup,
)
from thunder_core.guards.node import MISSING, MODULE_DICTIONARIES, PARTS, Node, NodeKind, namespace_of, node_kind
from thunder_core.guards.plain import ATOM_TYPES
from thunder_core.guards.source import ConstantSource, GlobalSource, Source
from thunder_core.guards.steps import (
    AttributeSource,
    DictionarySource,
    InstanceAttributeSource,
    ItemSource,
    SubmoduleSource,
    module_variable,
)
from thunder_core.guards.stored_content import stored_items
from thunder_core.guards.tensor_index import same_step
from thunder_core.ir.location import SourceLocation

_PLAIN_CONTAINER_MODULES = ("builtins", "collections")
_DEEPEST_FRESH = 4
_DESCRIBING = frozenset({"__name__", "__qualname__", "__doc__", "__annotations__"})
_FIXED_FOR_CLASSES = frozenset({"__name__", "__qualname__"})
"""Nobody renames classes, whose names much code logs."""
_CONTAINER_MODULES = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)
_MODULE_ATTRIBUTES = frozenset(dir(torch.nn.Module))
_DEEPEST_COMPUTED = 3
_MOST_FRESH_ITEMS = 64


class Following:
    """Reads objects by names; what is found goes to the heap's guards.

    Objects carry a label when they are followed: the variable or attribute that they were reached through, None when
    that is not known. It restricts names that are asked of one object only (``getattr(config, "flag", None)``).

    Attributes:
        classes, modules, computed: read what classes and modules hold, and what objects compute.
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self.classes = ClassReads(heap, self)
        self.modules = ModuleReads(heap, self)
        self.computed = ComputedReads(heap, self)
        self._dynamic = DynamicReads(heap, self)
        self._namespaces: set[tuple[int, int]] = set()

    def follow(self, node: Node, names: CodeNames, label: str | None) -> None:
        """Guard what ``names`` reads from the node, and go on from there."""
        if is_wrapper(node.object):
            self.follow_all(tuple(node.attributes.values()), names, label)
            return
        if names.probes or names.whole:
            self._dynamic.read(node, names, label)
        if node.kind is NodeKind.DICTIONARY:
            self._follow_dictionary(node, names, label)
        if node.kind is NodeKind.SEQUENCE and not node.reached:
            if names.only_appends(label):
                return
            self._heap.objects.guard_container(node)
        if id(names) in node.followed:
            return
        node.followed.add(id(names))
        kind = node.kind
        if kind is NodeKind.MODULE:
            self.modules.read(node, names)
        elif kind is NodeKind.OBJECT:
            self._follow_object(node, names)
        elif kind in (NodeKind.DICTIONARY, NodeKind.SEQUENCE, NodeKind.SET):
            if kind is not NodeKind.DICTIONARY:
                self.follow_all(node.content, names)
            if type(node.object).__module__ not in _PLAIN_CONTAINER_MODULES:
                self._follow_object(node, names)
        elif kind is NodeKind.FUNCTION or kind is NodeKind.OPAQUE:
            self._heap.asked(node, names)
            if isinstance(node.object, weakref.ref):
                self.follow_all((node.object(),), names)
            self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)
            if kind is NodeKind.FUNCTION:
                self._describe(node, names)
        elif kind is NodeKind.CLASS:
            self.classes.read(node, names)
            self._describe(node, names)
        elif kind is NodeKind.METHOD:
            self.follow_all((node.object.__self__,), names)
        elif kind is NodeKind.PARTIAL:
            self.follow_all([getattr(node.object, part) for part in PARTS[type(node.object)]], names)

    def _describe(self, node: Node, names: CodeNames) -> None:
        """What a function or a class says about itself, which other functions with its code need not say."""
        for name in sorted(names.attributes & _DESCRIBING):
            if name not in node.edges and not (node.kind is NodeKind.CLASS and name in _FIXED_FOR_CLASSES):
                node.edges.add(name)
                value = getattr(node.object, name, None)
                self._heap.keep(value)
                self._heap.meet(value, AttributeSource(node.source, name))
        if "__globals__" in names.attributes and node.kind is NodeKind.FUNCTION:
            self.read_namespace(node.object.__globals__, names)

    def read_namespace(self, namespace: dict[str, Any], names: CodeNames) -> None:
        """All global variables of a Python module, which code may ask for by computed names."""
        key = (id(namespace), id(names))
        if key in self._namespaces:
            return
        self._namespaces.add(key)
        module = str(namespace.get("__name__", ""))
        for name, value in tuple(namespace.items()):
            stored = self._heap.stored_globals.get((id(namespace), name))
            if not name.startswith("__") and (stored is None or stored[1] is value):
                source = GlobalSource(module, name, namespace)
                self._heap.read_global((id(namespace), name), value, source, late=module.partition(".")[0] == "torch")
                self.follow_all((value,), names, name)

    def follow_all(self, values: Iterable[Any], names: CodeNames, label: str | None = None) -> None:
        """Follow those of the values that are nodes, and the tensors to which the code may give attributes."""
        nodes = self._heap.nodes
        for value in values:
            node = nodes.get(id(value))
            if node is not None:
                self.follow(node, names, label)
            elif names.stored_attributes and isinstance(value, torch.Tensor):
                self.follow_tensor(value, names, label)

    def reach(self, value: Any, names: CodeNames, label: str | None, depth: int = 0) -> None:
        """An argument, a closure variable or a returned value: follow it, through objects that the program made."""
        kind = type(value)
        if kind in ATOM_TYPES:
            return
        if isinstance(value, torch.Tensor):
            self.follow_tensor(value, names, label)
            return
        node = self._heap.nodes.get(id(value))
        if node is not None:
            self.follow(node, names, label)
            return
        if isinstance(value, type):
            self.classes.read_type(value, names)
            return
        if isinstance(value, ModuleType):
            self.follow_python_module(value, names.attributes, names)
            return
        if depth > _DEEPEST_FRESH:
            return
        for name, item in _parts_of_fresh(value, names, label):
            self.reach(item, names, name, depth + 1)

    def follow_tensor(self, tensor: torch.Tensor, names: CodeNames, label: str | None) -> None:
        """Python attributes that were put on a tensor; what a tensor has by itself is no business of guards."""
        probed = bool(names.probes) and any(not hasattr(torch.Tensor, name) for name in names.probed(label))
        node = self._heap.tensor_node(tensor, written=bool(names.stored_attributes) or probed)
        if node is None:
            return
        self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)
        for name in names.probed(label) if probed else ():
            if name not in node.edges and name not in node.attributes and not hasattr(type(tensor), name):
                node.edges.add(name)
                self._heap.guards.append(not_its_own(node.source, name))

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
        self.module_written(module, names)
        for name in sorted(held.keys() & wanted):
            value = held[name]
            self._heap.read_global((id(held), name), value, module_variable(module, name), late=package == "torch")
            self.follow_all((value,), names, name)

    def module_written(self, module: ModuleType, names: CodeNames) -> None:
        """Remember what a Python module, none of PyTorch's, holds by the names that the code assigns to attributes."""
        if module.__name__.partition(".")[0] in UNREAD_PACKAGES | {"torch"}:
            return
        held = vars(module)
        for name in names.stored_attributes:
            source = GlobalSource(module.__name__, name, held)
            self._heap.stored_globals.setdefault((id(held), name), (source, held.get(name, MISSING)))

    def _follow_object(self, node: Node, names: CodeNames) -> None:
        self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)
        self.classes.attributes_of(node, names)
        if has_own_lookup(type(node.object)):
            self.computed.read(node, names)

    def attributes_of(self, node: Node, read: Iterable[str], names: CodeNames, *, labelled: bool = True) -> None:
        """Attributes that the object holds itself; not labelled when they may be asked for otherwise than by name."""
        own = namespace_of(node.object)
        asks = replaces_lookup(type(node.object))
        for name in read:
            if asks:
                self.computed.ask_for_held(node, name, names)
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
                    unchanged = getattr(node.object, name, MISSING) is value
                if unchanged:
                    child = self._heap.meet(value, source, by_key=True)
            if isinstance(value, ModuleType):
                self.follow_python_module(value, names.attributes, names)
            if child is not None:
                self.follow(child, names, name if labelled else None)
            elif isinstance(value, torch.Tensor):
                self.follow_tensor(value, names, name if labelled else None)
            now = own.get(name, value) if own is not None else value
            if now is not value:  # the program has put another object there
                self.follow_all((now,), names, name)


class ClassReads:
    """Reads class attributes by names.

    Attributes:
        names: what classes offer.
    """

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following
        self.names = ClassNames()
        self._edges: set[tuple[type, str]] = set()

    def attributes_of(self, node: Node, names: CodeNames) -> None:
        """What code reads of an object's class through the object."""
        kind = type(node.object)
        if names.asks_class:
            self.read_type(kind, names)
        on_class = self.names.of(kind)
        for name in sorted(on_class.keys() & names.attributes):
            attribute = on_class[name]
            if name in node.attributes and not isinstance(attribute, property):
                continue
            if function_behind(attribute) is not None:
                self.function(kind, name, attribute)
                self._guard_not_overridden(node, name)
                continue
            attribute = constant_behind(attribute)
            if not (is_descriptor(attribute) or isinstance(attribute, type) or name.startswith("__")):
                if replaces_lookup(kind):  # which may answer with something else
                    self._following.computed.ask_for_held(node, name, names)
                else:
                    self._value(node, name, attribute, names)
            elif _is_user_descriptor(attribute) or type(attribute) in PARTS:
                self._descriptor(kind, name, attribute, names)

    def read_type(self, kind: type, names: CodeNames) -> None:
        """A class that code reaches through its instances: ``type(self)``, ``self.__class__``, ``cls``."""
        node = self._heap.class_node(kind)
        if node is not None:
            self._following.follow(node, names, None)

    def _descriptor(self, kind: type, name: str, attribute: Any, names: CodeNames) -> None:
        """A descriptor of the user's: its code is observed when it runs, its own state is reached from the class."""
        if (kind, name) not in self._edges:
            self._edges.add((kind, name))
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
        if namespace_of(node.object) is not None:
            self._heap.guards.append(not_its_own(node.source, name))

    def _value(self, node: Node, name: str, attribute: Any, names: CodeNames) -> None:
        if name not in node.edges:
            node.edges.add(name)
            self._heap.meet(attribute, AttributeSource(node.source, name), by_key=True)
        self._following.follow_all((attribute,), names, name)

    def read(self, node: Node, names: CodeNames) -> None:
        """What code reads of a class itself."""
        kind = node.object
        on_class = self.names.of(kind)
        for name in sorted(on_class.keys() & names.attributes):
            attribute = on_class[name]
            if function_behind(attribute) is not None:
                self.function(kind, name, attribute)
                continue
            value = constant_behind(attribute)
            if is_descriptor(value) or name.startswith("__"):
                continue
            if node.attributes.get(name, attribute) is attribute:  # else overwritten before it could be read
                self._value(node, name, value, names)

    def read_whole(self, node: Node, names: CodeNames) -> None:
        """A class of which any attribute may be read: those that it holds itself, and their names."""
        own = own_names(node.object)
        self.read(node, replace(names, attributes=own, probes=frozenset(), whole=frozenset()))
        if "__dict__" not in node.edges:
            node.edges.add("__dict__")
            if kind_of_class(node.object) is CodeKind.USER:
                self._heap.guards.append(Check(node.source, OWN_NAMES, own))
            else:
                self._heap.late_classes.append(node)

    def function(self, kind: type, name: str, attribute: Any = None) -> None:
        """A method: replaced on the class, it would be another program."""
        if (kind, name) in self._edges:
            return
        self._edges.add((kind, name))
        behind = function_behind(attribute or self.names.of(kind).get(name))
        if behind is None:
            return
        suffix, function = behind
        if kind_of(function.__code__) is not CodeKind.USER and name != "forward":
            return
        source: Source = AttributeSource(ConstantSource(kind, kind.__name__), name)
        self._heap.meet(function, AttributeSource(source, suffix) if suffix else source)


def _is_user_descriptor(attribute: Any) -> bool:
    return hasattr(type(attribute), "__get__") and kind_of_class(type(attribute)) is CodeKind.USER


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
    return dictionary is not None and name in dictionary and dictionary[name] is value


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
                name in _MODULE_ATTRIBUTES or any(name in content for content in node.content)
            ):
                continue
            self.ask_for(node, name, names)

    def ask_for_held(self, node: Node, name: str, names: CodeNames) -> None:
        """An attribute that the object or its class holds, of a class with ``__getattribute__``.

        Raises:
            UnsupportedError: that method changes something.
        """
        if self.ask_for(node, name, names) is COMPUTED and not may_be_asked(node.object, name):
            kind = type(node.object).__qualname__
            code = inspect.getattr_static(type(node.object), "__getattribute__").__code__
            raise UnsupportedError(
                f"{kind}.{name} is read through {kind}.__getattribute__, which changes something: no guard can ask "
                "for it without doing so, too",
                location=SourceLocation(code.co_filename, code.co_firstlineno, code.co_qualname),
                advice=(
                    "define __getattr__ or a property instead of __getattribute__",
                    "read the attribute outside of the compiled function, and pass its value",
                ),
            )

    def ask_for(self, node: Node, name: str, names: CodeNames) -> Any:
        """An attribute as the class's own lookup answers it, or a marker (`thunder_core.guards.lookups.ask`)."""
        value = ask(node.object, name)
        if value is MISSING or value is COMPUTED:
            return value
        if name in node.edges:
            known = self._heap.nodes.get(id(value))
            if known is not None:
                self._following.follow(known, names, name)
            return value
        node.edges.add(name)
        self._heap.keep(value)
        child = self._heap.meet(value, AttributeSource(node.source, name), by_key=True)
        if child is not None:
            child.depth = max(child.depth, node.depth + 1)
            self._following.follow(child, names, name)
        return value


class DynamicReads:
    """Reads for ``getattr``, ``hasattr``, ``vars``, ``__dict__`` and ``except AttributeError``."""

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following
        self._absent: set[tuple[type, str]] = set()

    def read(self, node: Node, names: CodeNames, label: str | None) -> None:
        """Guard what may be asked for by computed names or with a default, its absence included."""
        key = (id(names), label)
        if key in node.asked:
            return
        node.asked.add(key)
        if names.reads_whole(label):
            self._whole(node, names)
        for name in names.probed(label):
            if name not in node.edges and name not in node.attributes:
                self._probe(node, name)

    def _whole(self, node: Node, names: CodeNames) -> None:
        if node.kind is NodeKind.CLASS:
            self._following.classes.read_whole(node, names)
        if node.kind not in (NodeKind.MODULE, NodeKind.OBJECT):
            return
        self._following.attributes_of(node, tuple(node.attributes), names, labelled=False)
        self._heap.objects.guard_attribute_names(node, ordered=names.reads_order)
        if node.kind is NodeKind.MODULE:
            for content, step in zip(node.content, MODULE_SOURCES, strict=True):
                self._following.modules.guard_keys(node, step.dictionary, content)
                for name, value in content.items():
                    self._following.modules.entry(node, step, name, value, names)

    def _probe(self, node: Node, name: str) -> None:
        """Guard that the object has no such attribute."""
        kind = type(node.object)
        if name in self._following.classes.names.of(kind):
            return
        is_module = node.kind is NodeKind.MODULE
        if is_module and (name in _MODULE_ATTRIBUTES or any(name in content for content in node.content)):
            return
        answer = ask(node.object, name)
        if answer is not MISSING and answer is not COMPUTED:
            return
        node.edges.add(name)
        if answer is MISSING and not is_module:
            self._heap.guards.append(Check(node.source, NO_ATTRIBUTE, name))
            return
        if kind.__dictoffset__:  # else it has slots only
            for dictionary in ("__dict__", *MODULE_DICTIONARIES) if is_module else ("__dict__",):
                self._heap.guards.append(not_its_own(node.source, name, dictionary))
        if answer is MISSING:
            self._absent_on_class(kind, name)

    def _absent_on_class(self, kind: type, name: str) -> None:
        # what a metaclass offers (``__name__``, say) classes have and instances have not
        if (kind, name) not in self._absent and not hasattr(kind, name):
            self._absent.add((kind, name))
            self._heap.guards.append(Check(ConstantSource(kind, kind.__name__), NO_ATTRIBUTE, name))


def _parts_of_fresh(value: Any, names: CodeNames, label: str | None) -> Iterable[tuple[str | None, Any]]:
    """Its parts that may be read, with labels."""
    kind = type(value)
    if isinstance(value, dict):
        items = tuple(dict.values(value))
    elif isinstance(value, list | tuple | set | frozenset | collections.deque):
        items = stored_items(value)
    elif kind is MethodType:
        items = (value.__self__,)
    elif kind is functools.partial:
        items = (value.func, *value.args, *value.keywords.values())
    elif node_kind(value) in (NodeKind.OBJECT, NodeKind.MODULE):
        own = namespace_of(value) or {}
        read = own.keys() if names.reads_whole(label) else sorted(own.keys() & names.attributes)
        return [(name, own[name]) for name in tuple(read)]
    else:
        return ()
    return [(None, item) for item in items] if len(items) <= _MOST_FRESH_ITEMS else ()
