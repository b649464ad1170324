"""The traversal of the heap by the names in executed code.

The traversal over-approximates: it reads every name in a code object from every object that it reaches by such names
from the arguments, closure and globals of the frame. It reads the contents that objects had when they were first
visited, so values that the program itself writes and reads are not guarded.

`Following` traverses the objects. `ClassReads`, `ModuleReads`, `ComputedReads` and `DynamicReads` read the attributes
of classes, those of modules, those that objects compute, and those with computed names or whose absence code may test.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import NO_ATTRIBUTE, NO_ENTRY, attributes_check, not_in_dict
from thunder_core.checks.global_state import replaces_builtins
from thunder_core.checks.originals import is_compiled
from thunder_core.checks.own_lookups import has_own_lookup
from thunder_core.checks.plain import ATOM_TYPES
from thunder_core.checks.source import (
    AttributeSource,
    ConstantSource,
    Source,
    StoredAttributeSource,
    global_source,
    module_variable,
)
from thunder_core.checks.stored_attributes import MISSING, PROXIES, namespace_of, referent_of, slot_names
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import PACKAGES
from thunder_frontend.observe.cached_functions import CachedFunction
from thunder_frontend.observe.class_reads import (
    IMMUTABLE,
    ClassNames,
    ClassReads,
    ComputedReads,
    is_attribute_of_module,
)
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import CONTAINERS, MODULE_DICTIONARIES, NodeKind, parts_of
from thunder_frontend.observe.heap import Heap, is_library
from thunder_frontend.observe.lookup_methods import COMPUTED, look_up, replaces_lookup
from thunder_frontend.observe.node import Node
from thunder_frontend.observe.stored_objects import Holder, StoredObjects, parts_of_fresh
from thunder_frontend.observe.uncovered_reads import UncoveredReads

_BUILTIN_MODULES = ("builtins", "collections")
DESCRIBING = frozenset({"__name__", "__qualname__", "__doc__", "__annotations__"})
_CONTAINER_MODULES = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)


class Following:
    """Reads attributes of objects by name and adds guards of their values to the heap.

    Each step of the traversal has a label: the variable or attribute that led to the object, or None if that is not
    known. It restricts names that belong to one object: ``getattr(config, "flag", None)``.

    Attributes:
        classes, modules, computed: read attributes of classes and modules, and those that objects compute.
        stored: the objects that the program stores.
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        class_names = ClassNames()
        self.computed = ComputedReads(heap, self, class_names)
        self.classes = ClassReads(heap, self, self.computed, class_names)
        self.modules = ModuleReads(heap, self)
        self.stored = StoredObjects(heap, self)
        self._holder: Node | Holder = Holder.ANY  # the node whose contents are followed
        self._dynamic = DynamicReads(heap, self)
        self._uncovered = UncoveredReads(heap, self)
        self._namespaces: set[tuple[int, int]] = set()
        self._absent_variables: set[tuple[int, str]] = set()
        self._open_modules: set[int] = set()

    def follow(self, node: Node, names: CodeNames, label: str | None) -> None:
        """Guard the attributes and items that ``names`` reads from a node, and follow their values."""
        if names.stores:
            self.stored.reached(node, names, self._holder)
        outer, self._holder = self._holder, node
        try:
            self._follow(node, names, label)
        finally:
            self._holder = outer

    def _follow(self, node: Node, names: CodeNames, label: str | None) -> None:
        if is_compiled(node.object):
            self.follow_all(tuple(node.attributes.values()), names, label)
            return
        if names.probes or names.whole or names.shown:
            self._dynamic.read(node, names, label)
        if node.kind is NodeKind.DICTIONARY:
            self._follow_dictionary(node, names, label)
        if label is None or label in names.inspected:
            self._heap.objects.read_buffer(node)
        if node.kind is NodeKind.SEQUENCE and not node.reached:
            if names.dictionaries.only_appends(label):
                self._heap.objects.guard_class_of(node)
                return
            self._heap.objects.guard_content(node)
        if id(names) in node.followed:
            return
        node.followed[id(names)] = names
        getattr(self, node.kind.read)(node, names)
        self._uncovered.read(node, names)
        self.stored.follow(node, names)

    # ------------------------------------------------------------ reads by `NodeKind`

    def read_module(self, node: Node, names: CodeNames) -> None:
        """Read attributes, parameters, buffers and submodules of a module."""
        self.modules.read(node, names)

    def read_object(self, node: Node, names: CodeNames) -> None:
        """Read attributes of an object, of its class, and those that its class computes."""
        self._heap.state_read(node, names)
        self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)
        self.classes.attributes_of(node, names)
        if has_own_lookup(type(node.object)):
            self.computed.read(node, names)

    def read_attributes(self, node: Node, names: CodeNames) -> None:
        """Read attributes of an object whose class belongs to a library."""
        self.follow_all((referent_of(node.object),), names)
        if type(node.object) in PROXIES:
            return
        if isinstance(node.object, CachedFunction):
            self.follow_all(self._heap.objects.visit_results(node.object), names)
        self._heap.state_read(node, names)
        self.classes.read_type(type(node.object), names)
        self.classes.read_attributes_in_c(node, names)
        if isinstance(node.object, ContextVar):
            self.follow_all((self._heap.context_value(node.object),), names)
        self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)

    def read_parts(self, node: Node, names: CodeNames) -> None:
        """Read the functions that an object calls, and its attributes."""
        self.follow_all([getattr(node.object, part) for part in parts_of(node.object)], names)
        self.read_attributes(node, names)

    def read_container(self, node: Node, names: CodeNames) -> None:
        """Read attributes of a container; `_follow_dictionary` reads the items of a dictionary."""
        of_user = module_of(type(node.object)) not in _BUILTIN_MODULES
        (self.read_object if of_user else self.read_attributes)(node, names)

    def read_items(self, node: Node, names: CodeNames) -> None:
        """Read all items of a container, and its attributes."""
        self.follow_all(node.content, names)
        self.read_container(node, names)

    def read_class(self, node: Node, names: CodeNames) -> None:
        """Read attributes of a class, and its docstring. Its name is assumed constant: much code logs it."""
        self.classes.read(node, names)
        self.describe(node, names.attributes & (DESCRIBING - {"__name__", "__qualname__"}))

    def read_function(self, node: Node, names: CodeNames) -> None:
        """Read attributes of a function, its variables, and its name, which functions with equal code may not share."""
        self.read_attributes(node, names)
        self.describe(node, names.attributes & DESCRIBING)
        if "__globals__" in names.attributes:
            self.read_namespace(node.object.__globals__, names)
        if "__closure__" in names.attributes:
            self._heap.objects.read_variables(node)

    def describe(self, node: Node, read: Iterable[str]) -> None:
        """Read attributes of a class or function that are no part of what it does: its name, its annotations."""
        for name in sorted(set(read) - node.guarded):
            node.guarded.add(name)
            value = getattr(node.object, name, None)
            self._heap.keep(value)
            self._heap.visit(value, AttributeSource(node.source, name))

    def read_namespace(self, namespace: dict[str, Any], names: CodeNames) -> None:
        """Read all global variables of a Python module, for code that computes their names."""
        key = (id(namespace), id(names))
        if key in self._namespaces:
            return
        self._namespaces.add(key)
        self._holder = Holder.ANY  # other functions may have the same global variables
        late = is_library(str(namespace.get("__name__", "")).partition(".")[0])
        for name, value in tuple(namespace.items()):
            if not name.startswith("__") and not self._heap.is_overwritten(namespace, name, value):
                source = global_source(namespace, name)
                self._heap.read_global((id(namespace), name), value, source, late=late)
                if issubclass(type(value), ModuleType):
                    self.follow_python_module(value, names.attributes, names)  # not whole: they refer to one another
                else:
                    self.follow_all((value,), names, name)

    def follow_all(self, values: Iterable[Any], names: CodeNames, label: str | None = None) -> None:
        """Follow the nodes and tensors among the values."""
        nodes = self._heap.nodes
        for value in values:
            node = nodes.get(id(value))
            if node is not None:
                self.follow(node, names, label)
            elif isinstance(value, torch.Tensor):
                self.follow_tensor(value, names, label)
            elif issubclass(type(value), ModuleType):
                self.python_module(value, names, label)
            elif isinstance(value, type):
                self.classes.read_type(value, names)
            else:
                self.classes.read_library(type(value), names)

    def reach(self, value: Any, names: CodeNames, label: str | None, holder: Node | Holder = Holder.ANY) -> None:
        """Follow an argument, closure variable or return value, also through objects that the program created.

        Args:
            holder: from where the code gets the value.
        """
        outer, self._holder = self._holder, holder
        try:
            self._reach(value, names, label)
        finally:
            self._holder = outer

    def _reach(self, value: Any, names: CodeNames, label: str | None) -> None:
        if type(value) in ATOM_TYPES:
            return
        pending, seen = [(label, value)], dict[int, Any]()
        while pending:
            label, value = pending.pop()
            if type(value) in PROXIES:  # `isinstance` would ask the object behind it, which may be gone
                value = referent_of(value)
            if isinstance(value, torch.Tensor):
                self.follow_tensor(value, names, label)
                continue
            node = self._heap.nodes.get(id(value))
            if node is not None:
                self.follow(node, names, label)
            elif isinstance(value, type):
                self.classes.read_type(value, names)
            elif isinstance(value, ModuleType):
                self.python_module(value, names, label)
            elif id(value) not in seen:
                seen[id(value)] = value
                if self.stored.is_too_large(seen, value):
                    return
                self.classes.read_type(type(value), names)
                pending += parts_of_fresh(value, names, label)[::-1]

    def follow_tensor(self, tensor: torch.Tensor, names: CodeNames, label: str | None) -> None:
        """Read the Python attributes of a tensor and of its class; other guards check its metadata."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            self.classes.read_type(type(tensor), names)
        probed = bool(names.probes) and any(not hasattr(torch.Tensor, name) for name in names.probed(label))
        node = self._heap.tensor_node(tensor, written=bool(names.stored_attributes) or probed)
        if node is None:
            return
        self.attributes_of(node, sorted(node.attributes.keys() & names.attributes), names)
        self._uncovered.read(node, names)
        for name in names.probed(label) if probed else ():
            if name not in node.guarded and name not in node.attributes and not hasattr(type(tensor), name):
                node.guarded.add(name)
                self._heap.guards.append(not_in_dict(node.source, name))

    def _follow_dictionary(self, node: Node, names: CodeNames, label: str | None) -> None:
        """Read the items whose keys are in the code, or all."""
        keys = names.dictionaries.keys_of(label)
        if keys is None or module_of(type(node.object)) not in _BUILTIN_MODULES:
            self._heap.objects.guard_content(node)
            if (id(names), None) not in node.probed:
                node.probed.add((id(names), None))
                self.follow_all((*node.content, *node.content.values()), names)
            return
        for key in keys:
            self._heap.objects.read_entry(node, key)
            if key in node.content:
                self.follow_all((node.content[key],), names, f"[{key!r}]")

    def python_module(self, module: ModuleType, names: CodeNames, label: str | None) -> None:
        """Read the variables of a Python module that code has as an object: by names, computed ones, with defaults."""
        self.follow_python_module(module, names.attributes, names)
        self.probe_python_module(module, names, label)

    def follow_python_module(self, module: ModuleType, wanted: Iterable[str], names: CodeNames) -> None:
        """Read variables of a Python module that the code has as an object."""
        held, package = vars(module), module.__name__.partition(".")[0]
        self.module_written(module, names)
        if package in PACKAGES or id(module) in self._open_modules:
            return
        self._open_modules.add(id(module))  # they refer to one another, and ``torch.torch`` to itself
        try:
            for name in sorted(held.keys() & wanted):
                value = held[name]
                self._heap.read_global((id(held), name), value, module_variable(module, name), late=is_library(package))
                self.follow_all((value,), names, name)
        finally:
            self._open_modules.discard(id(module))

    def probe_python_module(self, module: ModuleType, names: CodeNames, label: str | None) -> None:
        """Read variables of a Python module by computed names, and guard the absence of those with a default."""
        held, package = vars(module), module.__name__.partition(".")[0]
        if package in PACKAGES:
            return
        if names.reads_namespace(label) if is_library(package) else names.reads_whole(label):
            self.read_namespace(held, names)
        for name in names.probed(label):
            if name not in held and ("__getattr__" in held or not hasattr(module, name)):
                self.variable_missed(module, name)

    def variable_missed(self, module: ModuleType, name: str) -> None:
        """Code reads a variable that a Python module does not have; a ``__getattr__`` of the module is observed."""
        held = vars(module)
        if (id(held), name) in self._absent_variables:
            return
        self._absent_variables.add((id(held), name))
        if "__getattr__" in held:
            self._heap.guards.append(Check(ConstantSource(held, f"globals_of_{module.__name__}"), NO_ENTRY, name))
        else:
            self._heap.guards.append(Check(ConstantSource(module, module.__name__), NO_ATTRIBUTE, name))

    def module_written(self, module: ModuleType, names: CodeNames) -> None:
        """Record the variables of a Python module, other than PyTorch's, that the code may assign as attributes.

        Raises:
            RunEagerly: it may assign a builtin.
        """
        if module is builtins and not names.stored_attributes.isdisjoint(vars(builtins)):
            raise replaces_builtins(names.stored_attributes & vars(builtins).keys())
        package = module.__name__.partition(".")[0]
        if not is_library(package):
            self._heap.may_assign(vars(module), names.stored_attributes)

    def attributes_of(self, node: Node, read: Iterable[str], names: CodeNames, *, labelled: bool = True) -> None:
        """Read attributes that the object stores itself; not labelled if code may read them by computed names."""
        own = namespace_of(node.object)
        replaced = replaces_lookup(type(node.object))
        for name in read:
            if replaced:
                self.computed.look_up_held(node, name, names)
                continue
            value = node.attributes[name]
            child = self._heap.nodes.get(id(value))
            if name not in node.guarded:
                node.guarded.add(name)
                source: Source
                if own is not None and name in own:
                    source, unchanged = StoredAttributeSource(node.source, name), own[name] is value
                else:  # in a slot, or deleted since
                    source = node.attribute_source(name)
                    unchanged = node.kind.tables[0].get(node.object, name) is value
                if unchanged:
                    child = self._heap.visit(value, source, by_key=True)
            label = names.label_of(name) if labelled else None
            if child is not None:
                self.follow(child, names, label)
            else:
                self.follow_all((value,), names, label)


class ModuleReads:
    """Reads attributes, parameters, buffers and submodules of modules by names."""

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following

    def read(self, node: Node, names: CodeNames) -> None:
        """The attributes that code reads of a module."""
        wanted = names.attributes
        self._heap.objects.guard_module(node)
        self._following.attributes_of(node, sorted(node.attributes.keys() & wanted), names)
        for content, dictionary in zip(node.dictionaries, MODULE_DICTIONARIES, strict=True):
            whole = dictionary in wanted
            if whole:
                self.guard_keys(node, dictionary, content)
            for name in tuple(content) if whole else sorted(content.keys() & wanted):
                self.entry(node, dictionary, name, content[name], names)
        if isinstance(node.object, _CONTAINER_MODULES):
            for name, child in node.dictionaries[2].items():
                self.entry(node, "_modules", name, child, names)
        self._following.classes.attributes_of(node, names)
        if has_own_lookup(type(node.object)):
            self._following.computed.read(node, names)

    def guard_keys(self, node: Node, dictionary: str, content: Iterable[str]) -> None:
        """Guard the names in one of the dictionaries of attributes."""
        if dictionary not in node.guarded:
            node.guarded.add(dictionary)
            self._heap.guards.append(attributes_check(node.source, tuple(content), dictionary))

    def entry(self, node: Node, dictionary: str, name: str, value: Any, names: CodeNames) -> None:
        """Read a parameter, buffer or submodule from one of these dictionaries."""
        child = self._heap.nodes.get(id(value))
        if name not in node.guarded and _holds(node.object.__dict__.get(dictionary), name, value):
            node.guarded.add(name)
            source = StoredAttributeSource(node.source, name, dictionary)
            if child is not None and child.parent is node and child.source == source:
                self._heap.objects.guard_module(child)
            else:
                child = self._heap.visit(value, source, by_key=True)
        if names.shallow:
            return
        if child is not None:
            self._following.follow(child, names, name)
        elif value is not None:
            self._following.follow_tensor(value, names, name)


def _holds(dictionary: dict[str, Any] | None, name: str, value: Any) -> bool:
    """Whether a dictionary still has this item, which the program may have overwritten before code read it."""
    return dictionary is not None and name in dictionary and dictionary[name] is value


class DynamicReads:
    """Reads for ``getattr``, ``hasattr``, ``vars``, ``__dict__``, ``except AttributeError``, and by functions of C."""

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following
        self._absent: set[tuple[type, str]] = set()

    def read(self, node: Node, names: CodeNames, label: str | None) -> None:
        """Guard attributes that code may read by computed names or with a default, and their absence."""
        key = (id(names), label)
        if key in node.probed:
            return
        node.probed.add(key)
        if names.reads_whole(label):
            self._whole(node, names)
        if names.shows(label):
            self._show(node)
        for name in names.probed(label):
            if name not in node.guarded and name not in node.attributes:
                self._probe(node, name, names)

    def _whole(self, node: Node, names: CodeNames) -> None:
        if node.kind is NodeKind.CLASS:
            self._following.classes.read_whole(node, names)
        if node.kind not in (NodeKind.MODULE, NodeKind.OBJECT):
            return
        self._following.attributes_of(node, tuple(node.attributes), names, labelled=False)
        self._heap.objects.guard_attribute_names(node, ordered=names.reads_order)
        if node.kind is NodeKind.MODULE:
            for content, dictionary in zip(node.dictionaries, MODULE_DICTIONARIES, strict=True):
                self._following.modules.guard_keys(node, dictionary, content)
                for name, value in content.items():
                    self._following.modules.entry(node, dictionary, name, value, names)

    def _show(self, node: Node) -> None:
        """Read an object that is formatted or compared by methods of C, which no frame shows."""
        kind = type(node.object)  # reading `__class__` may run code of the program
        if issubclass(kind, SimpleNamespace):
            self._heap.objects.read_everything(node, names=True)
        elif issubclass(kind, BaseException):
            self._heap.hidden_states.called(node.source.describe())

    def _probe(self, node: Node, name: str, names: CodeNames) -> None:
        """Guard that the object has no such attribute."""
        kind = type(node.object)
        if name in slot_names(kind):
            self._following.computed.read_empty_slot(node, name, names)
            return
        if name in self._following.classes.names.of(kind):
            return
        if is_attribute_of_module(node, name):
            return
        is_module = node.kind is NodeKind.MODULE
        value = look_up(node.object, name)
        if value is not MISSING and value is not COMPUTED:
            return
        node.guarded.add(name)
        if value is MISSING and node.kind in CONTAINERS and kind.__flags__ & IMMUTABLE:
            # its class cannot get the attribute, and most such containers cannot either
            self._heap.objects.guard_class_of(node)
            self._heap.objects.guard_attribute_names(node, ordered=False)
            return
        if value is MISSING and not is_module:
            self._heap.guards.append(Check(node.source, NO_ATTRIBUTE, name))
            return
        if kind.__dictoffset__:  # else it has slots only
            for dictionary in ("__dict__", *MODULE_DICTIONARIES) if is_module else ("__dict__",):
                self._heap.guards.append(not_in_dict(node.source, name, dictionary))
        if value is MISSING:
            self._absent_on_class(kind, name)

    def _absent_on_class(self, kind: type, name: str) -> None:
        # a class has attributes of its metaclass, such as ``__name__``, that its instances lack
        if (kind, name) not in self._absent and not hasattr(kind, name):
            self._absent.add((kind, name))
            self._heap.guards.append(Check(ConstantSource(kind, kind.__name__), NO_ATTRIBUTE, name))
