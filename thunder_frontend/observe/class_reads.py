"""Reads of attributes that an object does not store: those of its class, and those that its class computes.

If a class defines a method after a program was recorded, which a base class or Python supplied before (``bool(x)``,
``x == y``, methods of lists and tensors), the program is another one, though no object that it read has changed.
`DEFINED_NAMES` checks these names; attributes that a class defines are guarded where they are read.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable
from dataclasses import replace
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType
from typing import Any, Final, Protocol

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import CLASS_ATTRIBUTE_NAMES, EMPTY_SLOT, not_in_dict
from thunder_core.checks.own_lookups import has_own_lookup
from thunder_core.checks.plain import is_plain
from thunder_core.checks.source import AttributeSource, ConstantSource, ItemSource, Source
from thunder_core.checks.stored_attributes import MISSING, is_filled, namespace_of, slot_names
from thunder_core.errors import UnsupportedError
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.location import SourceLocation
from thunder_core.tracing.frames import CodeKind, is_in_installed, kind_of, kind_of_class
from thunder_frontend.observe.cached_functions import CachedFunction
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import PARTS, NodeKind
from thunder_frontend.observe.heap import Heap
from thunder_frontend.observe.lookup_methods import COMPUTED, has_pure_lookup, look_up, replaces_lookup
from thunder_frontend.observe.node import Node

_DEEPEST_COMPUTED = 3
_MODULE_ATTRIBUTES = frozenset(dir(torch.nn.Module))
_BASES = frozenset({object, torch.nn.Module})
_KNOWN_IN_C = frozenset({"builtins", "_thread", "weakref"})
"""Of the standard library, the packages of whose classes in C other records know the state."""
IMMUTABLE = 1 << 8
"""Of ``type.__flags__``: no attribute of the class can be set (``Py_TPFLAGSIMMUTABLETYPE``)."""


class Follow(Protocol):
    """Guards the attributes that code reads of objects, and continues with the values of these attributes."""

    def follow(self, node: Node, names: CodeNames, label: str | None) -> None: ...
    def follow_all(self, values: Iterable[Any], names: CodeNames, label: str | None = None) -> None: ...
    def reach(self, value: Any, names: CodeNames, label: str | None, holder: Any = ...) -> None: ...


class ComputedReads:
    """Reads the attributes that ``__getattr__`` or ``__getattribute__`` of a class returns."""

    def __init__(self, heap: Heap, following: Follow, class_names: ClassNames) -> None:
        self._heap = heap
        self._following = following
        self._class_names = class_names
        self._unguarded: dict[tuple[int, str], Any] = {}

    def read(self, node: Node, names: CodeNames) -> None:
        """Read the names of attributes that neither the object nor its class stores."""
        if node.depth > _DEEPEST_COMPUTED:  # objects that create an attribute for each read have no end
            return
        on_class = self._class_names.of(type(node.object))
        for name in sorted(names.attributes):
            if name in node.guarded or name in node.attributes or name.startswith("__"):
                continue
            if name in on_class:
                if name in slot_names(type(node.object)):
                    self.read_empty_slot(node, name, names)
                continue
            if is_attribute_of_module(node, name):
                continue
            self.look_up(node, name, names)

    def read_empty_slot(self, node: Node, name: str, names: CodeNames) -> None:
        """Read a slot that was empty at the first visit, and what ``__getattr__`` returns in its place."""
        if has_own_lookup(type(node.object)) and not is_filled(node.object, name):  # else the program has filled it
            self.look_up(node, name, names)
        node.guarded.add(name)
        self._heap.guards.append(Check(node.source, EMPTY_SLOT, name))

    def look_up_held(self, node: Node, name: str, names: CodeNames) -> None:
        """Read an attribute that the object or its class stores, if the class defines ``__getattribute__``.

        Raises:
            UnsupportedError: this method has side effects.
        """
        if self.look_up(node, name, names) is COMPUTED and not has_pure_lookup(node.object, name):
            kind = type(node.object).__qualname__
            code = inspect.getattr_static(type(node.object), "__getattribute__").__code__
            raise UnsupportedError(
                f"{kind}.{name} is read through {kind}.__getattribute__, which has side effects; a guard that reads "
                "the attribute would repeat them",
                location=SourceLocation(code.co_filename, code.co_firstlineno, code.co_qualname),
                advice=(
                    "define __getattr__ or a property instead of __getattribute__",
                    "read the attribute outside of the compiled function, and pass its value",
                ),
            )

    def look_up(self, node: Node, name: str, names: CodeNames) -> Any:
        """Read an attribute by `thunder_frontend.observe.lookup_methods.look_up`.

        Names without a value to guard are looked up once for each object: the code of each frame has many of them, and
        a value that they get later is one that the program stores.
        """
        key = (id(node.object), name)
        if key in self._unguarded:
            return self._unguarded[key]
        value = look_up(node.object, name)
        if value is MISSING or value is COMPUTED:
            self._unguarded[key] = value
            return value
        if name in node.guarded:
            known = self._heap.nodes.get(id(value))
            if known is not None:
                self._following.follow(known, names, name)
            return value
        node.guarded.add(name)
        self._heap.keep(value)
        child = self._heap.visit(value, AttributeSource(node.source, name), by_key=True)
        if child is not None:
            child.depth = max(child.depth, node.depth + 1)
            self._following.follow(child, names, name)
        return value


def is_attribute_of_module(node: Node, name: str) -> bool:
    """Whether a node is a module with such an attribute, parameter, buffer or submodule by PyTorch's definition."""
    if node.kind is not NodeKind.MODULE:
        return False
    return name in _MODULE_ATTRIBUTES or any(name in content for content in node.dictionaries)


class ClassReads:
    """Reads class attributes by names.

    Attributes:
        names: the attributes of classes.
    """

    def __init__(self, heap: Heap, following: Follow, computed: ComputedReads, class_names: ClassNames) -> None:
        self._heap = heap
        self._following = following
        self._computed = computed
        self.names = class_names
        self._edges: set[tuple[type, str]] = set()
        self._libraries: dict[tuple[type, int], CodeNames] = {}

    def attributes_of(self, node: Node, names: CodeNames) -> None:
        """The attributes that code reads of a class through one of its objects."""
        kind = type(node.object)
        if names.reads_class:
            self.read_type(kind, names)
        on_class = self.names.of(kind)
        for name in sorted(on_class.keys() & names.attributes):
            attribute = on_class[name]
            if name in node.attributes and not (isinstance(attribute, property) or _hides_slot(kind, name, attribute)):
                continue
            if function_behind(attribute) is not None:
                self.function(kind, name, attribute)
                self._guard_not_overridden(node, name)
                continue
            if self._cached_function(kind, name, attribute, names):
                continue
            if isinstance(attribute, property):  # of a function of C, such as `operator.attrgetter`
                self._heap.objects.read_everything(node, names=True)
                continue
            attribute = constant_behind(attribute)
            if is_value(name, attribute):
                if replaces_lookup(kind):  # which may return another value
                    self._computed.look_up_held(node, name, names)
                else:
                    self._value(node, name, attribute, names, is_hiding=_hides_slot(kind, name, attribute))
            elif is_user_descriptor(attribute) or type(attribute) in PARTS:
                self._descriptor(kind, name, attribute)

    def read_type(self, kind: type, names: CodeNames) -> None:
        """A class that code reads from its instances: ``type(self)``, ``self.__class__``, ``cls``."""
        node = self._heap.class_node(kind)
        if node is not None:
            self._following.follow(node, names, None)
        elif self._heap.made_classes.has(kind):
            for base in kind.__bases__:
                self.read_type(base, names)
        else:
            self.read_library(kind, names)

    def read_library(self, kind: type, names: CodeNames) -> None:
        """The attributes that code reads of a class of a library: its constants, and what a user has added to it."""
        if kind.__flags__ & IMMUTABLE or (kind, id(names)) in self._libraries:
            return
        self._libraries[kind, id(names)] = names
        held = self.names.of(kind)
        for name in sorted(held.keys() & names.attributes):
            attribute = held[name]
            if function_behind(attribute) is not None:
                self.function(kind, name, attribute)
            elif is_value(name, attribute):
                if (kind, name) not in self._edges:
                    self._edges.add((kind, name))
                    self._heap.visit(attribute, AttributeSource(ConstantSource(kind, kind.__name__), name), by_key=True)
                self._following.follow_all((attribute,), names, name)

    def read_attributes_in_c(self, node: Node, names: CodeNames) -> None:
        """The plain attributes that an object of the standard library has in C: `decimal.Context.prec`."""
        kind = type(node.object)
        package = module_of(kind).partition(".")[0]
        if package not in sys.stdlib_module_names or package in _KNOWN_IN_C:
            return
        held = self.names.of(kind)
        for name in sorted(held.keys() & names.attributes - node.guarded):
            if isinstance(held[name], GetSetDescriptorType | MemberDescriptorType) and not name.startswith("__"):
                try:
                    value = getattr(node.object, name)
                except Exception:  # noqa: BLE001 - of a closed connection, say: then the program does not read it
                    value = None
                if value is not None and is_plain(value):
                    self._value(node, name, value, names)

    def _cached_function(self, kind: type, name: str, attribute: Any, names: CodeNames) -> bool:
        """Read a method with a ``functools.lru_cache`` and its results; False for other attributes."""
        wrapped = isinstance(attribute, classmethod | staticmethod)
        function = attribute.__func__ if wrapped else attribute
        if not isinstance(function, CachedFunction):
            return False
        if (kind, name) not in self._edges:
            self._edges.add((kind, name))
            source = _stored(kind, name)[0]
            self._heap.visit(function, AttributeSource(source, "__func__") if wrapped else source)
        self._following.follow_all((function,), names, name)
        return True

    def _descriptor(self, kind: type, name: str, attribute: Any) -> None:
        """A descriptor of the user. Its code is observed when it runs; the path to its state begins at the class."""
        if (kind, name) not in self._edges:
            self._edges.add((kind, name))
            self._heap.visit(attribute, _stored(kind, name)[0])

    def _guard_not_overridden(self, node: Node, name: str) -> None:
        """Guard that an object does not override a method of its class; of PyTorch's modules only ``forward``."""
        if name in node.guarded or (name == "forward" and node.called):
            return
        if name != "forward" and module_of(type(node.object)).partition(".")[0] == "torch":
            return
        node.guarded.add(name)
        if namespace_of(node.object) is not None:
            self._heap.guards.append(not_in_dict(node.source, name))

    def _value(self, node: Node, name: str, attribute: Any, names: CodeNames, *, is_hiding: bool = False) -> None:
        key = f"type().{name}" if is_hiding else name
        if key not in node.guarded:
            node.guarded.add(key)
            self._heap.visit(attribute, AttributeSource(node.source, name), by_key=True)
        self._following.follow_all((attribute,), names, name)

    def read(self, node: Node, names: CodeNames) -> None:
        """The attributes that code reads of a class itself: its own, and those of its metaclass.

        A descriptor has its path from the class, so that the state is guarded that its own code reads.
        """
        kind = node.object
        on_class = self.names.of(kind)
        for name in sorted(on_class.keys() & names.attributes):
            attribute = on_class[name]
            if function_behind(attribute) is not None:
                self.function(kind, name, attribute)
                continue
            if self._cached_function(kind, name, attribute, names):
                continue
            value = constant_behind(attribute)
            if is_user_descriptor(value):
                self._descriptor(kind, name, attribute)
                continue
            # by the program, before it could read it: `dataclasses.dataclass` deletes fields with a factory
            unwritten = node.attributes.get(name, attribute) is attribute is _stored_now(kind, name)
            if unwritten and (is_value(name, value) or (isinstance(value, type) and name not in OF_PYTHON)):
                self._value(node, name, value, names)
        metaclass = self._heap.class_node(type(kind))
        if metaclass is not None:
            self._following.follow(metaclass, names, None)
            for name in sorted((self.names.of(type(kind)).keys() & names.attributes) - on_class.keys()):
                self._guard_not_overridden(node, name)

    def read_whole(self, node: Node, names: CodeNames) -> None:
        """Read all attributes that a class defines itself, and guard their names."""
        own = {name for name in vars(node.object) if not name.startswith("__")}
        self.read(node, replace(names, attributes=own, probes=set(), whole=set()))
        if "__dict__" not in node.guarded:
            node.guarded.add("__dict__")
            if kind_of_class(node.object) is CodeKind.USER:
                self._heap.guards.append(Check(node.source, CLASS_ATTRIBUTE_NAMES, frozenset(vars(node.object))))
            else:
                self._heap.late_classes.append(node)

    def read_special(self, kind: type) -> None:
        """The standard library reads the attributes of a class with special names: `dataclasses` those of its fields.

        They are assumed constant for classes of installed packages.
        """
        if (kind, "") in self._edges or kind_of_class(kind) is not CodeKind.USER or is_in_installed(module_of(kind)):
            return
        self._edges.add((kind, ""))
        for name, attribute in self.names.of(kind).items():
            if name.startswith("__") and is_value(name, attribute):
                node = self._heap.visit(attribute, AttributeSource(ConstantSource(kind, kind.__name__), name))
                if node is not None:
                    self._heap.objects.read_everything(node, names=True)

    def function(self, kind: type, name: str, attribute: Any = None) -> None:
        """A method, which guards compare by its code."""
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
        if hasattr(type(inspect.getattr_static(type(kind), name, None)), "__set__"):
            # of the metaclass, such as ``__name__``: it precedes the attribute that the class stores
            source, held = _stored(kind, name)
            suffix = suffix or ("__func__" if isinstance(held, staticmethod) else "")
        self._heap.visit(function, AttributeSource(source, suffix) if suffix else source)


def _stored(kind: type, name: str) -> tuple[Source, Any]:
    """The path to the attribute that a class or one of its bases stores, and the attribute, which is not bound."""
    owner = next(base for base in kind.__mro__ if name in base.__dict__)
    return ItemSource(AttributeSource(ConstantSource(owner, owner.__name__), "__dict__"), name), owner.__dict__[name]


def _stored_now(kind: type, name: str) -> Any:
    """The attribute that a class or one of its bases stores now, which the program may have changed."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), MISSING)


def _hides_slot(kind: type, name: str, attribute: Any) -> bool:
    """Whether an object's attribute of this name is that of its class, though the object has a slot with the name."""
    return name in slot_names(kind) and not isinstance(attribute, MemberDescriptorType)


def is_user_descriptor(attribute: Any) -> bool:
    """Whether reading the attribute runs code of a class of the user."""
    return hasattr(type(attribute), "__get__") and kind_of_class(type(attribute)) is CodeKind.USER


# ---------------------------------------------------------------- attributes of classes

_WRAPPERS: Final = (
    (classmethod, "__func__", "__func__"),
    (staticmethod, "__func__", ""),
    (property, "fget", "fget"),
    (functools.cached_property, "func", "func"),
)
"""Descriptors of a function: class, attribute with the function, path from what a read of the class returns to it."""
OF_PYTHON: Final = frozenset({*dir(type), "__weakref__"} - {"mro"})
"""Special names that Python sets and reads. Others, as ``__version__``, are those of the program and of libraries."""
_LIBRARY_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType, WrapperDescriptorType)


class ClassNames:
    """The attributes of classes, cached for one observation; classes may change between two observations."""

    def __init__(self) -> None:
        self._known: dict[type, dict[str, Any]] = {}

    def of(self, kind: type) -> dict[str, Any]:
        """Class attributes by name, not bound, except for those of `object` and `nn.Module`."""
        names = self._known.get(kind)
        if names is None:
            names = self._known[kind] = {}
            for base in reversed(kind.__mro__):
                if base not in _BASES:
                    names.update(base.__dict__)
        return names


def function_behind(attribute: Any) -> tuple[str, FunctionType] | None:
    """The Python function that a class attribute calls, and the attribute that refers to it, if it is another."""
    if isinstance(attribute, FunctionType):
        return "", attribute
    for kind, stored, path in _WRAPPERS:
        if isinstance(attribute, kind):
            function = getattr(attribute, stored)
            return (path, function) if isinstance(function, FunctionType) else None
    return None


def constant_behind(attribute: Any) -> Any:
    """The result of reading a class attribute: the function of a static method, else the attribute itself."""
    return attribute.__func__ if isinstance(attribute, staticmethod) else attribute


def is_value(name: str, attribute: Any) -> bool:
    """Whether an object has the attribute of its class as it is, and it is no class itself."""
    if name.startswith("__") and is_in_installed(module_of(type(attribute))):  # what a library keeps in the class
        return False
    return not (_is_descriptor(attribute) or isinstance(attribute, type) or name in OF_PYTHON)


def _is_descriptor(attribute: Any) -> bool:
    """Whether reading the attribute from an object runs code or returns another value."""
    return isinstance(attribute, _LIBRARY_DESCRIPTORS) or hasattr(type(attribute), "__get__")
