"""Guards of one object, by its kind: containers, functions, and objects whose reads cannot be observed."""

from __future__ import annotations

import array
import contextvars
import functools
import gc
import sys
import weakref
from collections.abc import Callable
from types import CellType, FunctionType, MappingProxyType, MethodType, MethodWrapperType
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module

from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of, kind_of_class
from thunder_core.guards.conditions import (
    ARRAY,
    CACHED_RESULTS,
    CODE,
    EQUALITY,
    IDENTITY,
    LENGTH,
    MEMBERS,
    NO_ENTRY,
    STORED_LENGTH,
    TYPE,
    VALUE,
    array_content,
    attributes_check,
    identity_check,
    keys_check,
)
from thunder_core.guards.node import MODULE_DICTIONARIES, Node, NodeKind, make_node, namespace_of, node_kind
from thunder_core.guards.plain import copy_content, is_plain, is_plain_content
from thunder_core.guards.records import Records
from thunder_core.guards.source import ConstantSource, Source
from thunder_core.guards.steps import (
    AttributeSource,
    ClosureSource,
    ContextSource,
    InstanceAttributeSource,
    ItemSource,
    ReferentSource,
    item_source,
)
from thunder_core.guards.stored_content import is_overridden

_MISSING = object()
_IN_ORDER = "__dict__ in order"
_CachedFunction = functools._lru_cache_wrapper


class Meet(Protocol):
    """Records that an object was read from a path, and adds guards of it."""

    def __call__(self, value: Any, source: Source, *, by_key: bool = False) -> Node | None: ...


class ObjectGuards:
    """Adds guards of nodes to the records, and visits the objects that the nodes refer to."""

    def __init__(self, records: Records, meet: Meet, meet_receiver: Callable[[Any, Source], None]) -> None:
        self._records = records
        self._meet = meet
        self._meet_receiver = meet_receiver
        self._arrays: list[Node] = []
        self._cached: list[tuple[Node, tuple[int, int]]] = []

    def guard_container(self, node: Node) -> None:
        """The content of a sequence or a set."""
        if node.reached:
            return
        node.reached = True
        value, source = node.object, node.source
        content = list(node.content) if type(value) is list else value  # to which the program may have appended
        if is_plain_content(content):
            self._records.guards.append(Check(source, VALUE, copy_content(content)))
            self._note_nested(node)
            return
        self._records.guards.append(Check(source, TYPE, type(value)))
        if node.kind is NodeKind.SEQUENCE:
            length = STORED_LENGTH if is_overridden(value) else LENGTH
            self._records.guards.append(Check(source, length, len(node.content)))
            for index, item in enumerate(node.content):
                self._meet(item, item_source(value, source, index))
        else:
            self._read_set(node)

    def _read_set(self, node: Node) -> None:
        """A set of objects: it holds these, in this order; no other path need lead to them."""
        self._records.guards.append(Check(node.source, MEMBERS, node.content))
        self._records.distinct.members(node.content)
        for item in node.content:
            if not is_plain(item) and not isinstance(item, Tensor):
                self._meet(item, ConstantSource(item, type(item).__name__))

    def _note_nested(self, node: Node) -> None:
        """Make nodes of the containers in one that is guarded as a whole, so that writes to them are seen."""
        items = node.content.items() if node.kind is NodeKind.DICTIONARY else enumerate(node.content)
        for key, item in items:
            if type(item) in (list, dict, set, tuple) and id(item) not in self._records.nodes:
                nested = make_node(item, item_source(node.object, node.source, key), node_kind(item))
                nested.reached = True
                self._records.nodes[id(item)] = nested
                if nested.kind is not NodeKind.SET:
                    self._note_nested(nested)

    def read_dictionary(self, node: Node) -> None:
        """Guard the whole content of a dictionary."""
        if node.reached:
            return
        node.reached = True
        if type(node.object) is dict and is_plain_content(node.content):
            self._records.guards.append(Check(node.source, VALUE, copy_content(node.content)))
            self._note_nested(node)
            return
        self._records.guards.append(Check(node.source, TYPE, type(node.object)))
        stored = is_overridden(node.object)
        self._records.guards.append(keys_check(node.source, tuple(node.content), stored=stored))
        self._records.distinct.members(node.content)
        for key, item in node.content.items():
            if key not in node.asked_keys:
                node.asked_keys.add(key)
                self._meet(item, item_source(node.object, node.source, key))
            self._guard_key(key)

    def read_entry(self, node: Node, key: Any) -> None:
        """Guard one entry of a dictionary, or that it is not there."""
        if node.reached or key in node.asked_keys:
            return
        node.asked_keys.add(key)
        if key not in node.content:
            if key not in node.object:  # else written before it could be read
                self._records.guards.append(Check(node.source, NO_ENTRY, key))
        elif dict.get(node.object, key, _MISSING) is node.content[key]:  # else overwritten before it could be read
            self._meet(node.content[key], item_source(node.object, node.source, key), by_key=True)

    def _guard_key(self, key: Any) -> None:
        """An object that is a key of a dictionary and compared by identity."""
        node = self._records.nodes.get(id(key))
        if node is not None and node.kind is NodeKind.OBJECT:
            self.guard_opaque(node)

    def guard_function(self, node: Node) -> None:
        """A Python function: its code and defaults; its closure is read when it runs."""
        function: FunctionType = node.object
        code = function.__code__
        if kind_of(code) not in (CodeKind.USER, CodeKind.MODULE):
            self._records.guards.append(Check(node.source, IDENTITY, function))
            self._read_wrapped(function, node)
            return
        self._records.guards.append(Check(node.source, CODE, code))
        self._records.functions.setdefault(id(code), []).append(node)
        self._records.keep(code)
        for name in ("__defaults__", "__kwdefaults__"):
            value = getattr(function, name)
            if value:
                self._meet(value, AttributeSource(node.source, name))
        # before its frame is entered: a hook of `sys.setprofile` writes back what the frame's variables were
        for index, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__ or (), strict=True)):
            self._records.stand_ins.met(_content(cell), ClosureSource(node.source, index, name))

    def _read_wrapped(self, wrapper: FunctionType, node: Node) -> None:
        """The user's functions in the closure of a decorator's result, such as that of ``torch.no_grad()``.

        The frame of the wrapper is not observed, those of the functions are, and then they need a path. A dictionary of
        such functions is what the wrapper chooses from: that of ``functools.singledispatch`` grows by ``register``.
        """
        if hasattr(wrapper, "__wrapped__"):
            self._read_closure(wrapper, node.source, {id(wrapper)})

    def _read_closure(self, function: FunctionType, source: Source, read: set[int]) -> None:
        """What a function that is not observed closes over; through other such functions, ``read`` by now."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for index, (name, cell) in enumerate(cells):
            held, path = _content(cell), ClosureSource(source, index, name)
            is_function = type(held) is FunctionType
            registry = type(held) is dict and any(map(_is_users, held.values()))
            if _is_users(held) or registry or (is_function and hasattr(held, "__wrapped__")):
                self._meet(held, path)
            elif is_function and id(held) not in read:
                self._records.guards.append(Check(path, IDENTITY, held))
                self._read_closure(held, path, read | {id(held)})

    def guard_parts(self, node: Node, kind: type, names: tuple[str, ...]) -> None:
        """An object that is compared by a few parts."""
        self._records.guards.append(Check(node.source, TYPE, kind))
        for name in names:
            self._meet(getattr(node.object, name), AttributeSource(node.source, name))

    def guard_opaque(self, node: Node) -> None:
        """An object whose reads cannot be observed: compared by its ``__eq__`` if it has one, otherwise by identity."""
        value, source = node.object, node.source
        kind = type(value)
        self._records.watch(value, source)
        self._records.getters.met(value)
        if isinstance(value, MethodWrapperType):
            self._meet_receiver(value, source)
        if isinstance(value, weakref.ref):
            self._records.guards.append(Check(source, TYPE, kind))
            self._meet(value(), ReferentSource(source))
            return
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            self._arrays.append(node)  # whether its content counts depends on how the program uses it
            return
        if isinstance(value, MappingProxyType):
            self._read_mapping(node)
            return
        if isinstance(value, bytearray | array.array):
            self._records.guards.append(Check(source, EQUALITY, value[:]))
            return
        if isinstance(value, _CachedFunction):
            self._cached.append((node, value.cache_info()[:2]))
        if isinstance(value, contextvars.ContextVar):
            self._read_context(node)
        if has_equality(value):
            self._records.guards.append(Check(source, EQUALITY, value))
            return
        self._records.guards.append(identity_check(source, value))

    def _read_mapping(self, node: Node) -> None:
        """A read-only view of a dictionary."""
        self._records.guards.append(Check(node.source, TYPE, type(node.object)))
        self._records.guards.append(keys_check(node.source, tuple(node.object)))
        for key, item in node.object.items():
            self._meet(item, ItemSource(node.source, key))

    def _read_context(self, node: Node) -> None:
        """The value of a context variable."""
        value = self._records.context_before.get(node.object)
        self._records.keep(value)
        self._meet(value, ContextSource(node.source))

    def guard_attribute_names(self, node: Node, *, ordered: bool) -> None:
        """The names in the ``__dict__`` of an object, with their order if code may read that."""
        own = namespace_of(node.object)
        if own is None or not own.keys() >= node.attributes.keys() or _IN_ORDER in node.edges:
            return
        if ordered:
            node.edges.add(_IN_ORDER)
        elif "__dict__" in node.edges:
            return
        node.edges.add("__dict__")
        names = tuple(node.attributes)
        if node.kind is NodeKind.MODULE:
            names = tuple([name for name in own if name in node.attributes or name in MODULE_DICTIONARIES])
        self._records.guards.append(attributes_check(node.source, names, ordered=ordered))

    def read_everything(self, node: Node, *, names: bool = False) -> None:
        """Guard every attribute of an object, and of the objects below it; also which there are, if ``names`` count."""
        if names:
            self.guard_attribute_names(node, ordered=True)
        own = getattr(node.object, "__dict__", ())
        for name, value in node.attributes.items():
            if name in node.edges:
                continue
            node.edges.add(name)
            step = InstanceAttributeSource if name in own else AttributeSource
            child = self._meet(value, step(node.source, name))
            if child is not None and child.kind is NodeKind.OBJECT:
                self.read_everything(child, names=names)

    def called_cached_functions(self) -> tuple[Any, ...]:
        """Functions of ``functools.lru_cache`` with more hits or misses than when they were met."""
        return tuple([node.object for node, calls in self._cached if node.object.cache_info()[:2] != calls])

    def finish(self) -> None:
        """Add the guards that depend on the whole run of the program."""
        for node in self._arrays:
            lifted = id(node.object) in self._records.tensors.asked
            self._records.guards.append(Check(node.source, ARRAY, array_content(node.object, content=not lifted)))
        self._arrays.clear()
        for node, _ in self._cached:
            for held in gc.get_referents(node.object):  # results by arguments
                self._records.distinct.members(held if type(held) is dict else ())
            self._records.guards.append(Check(node.source, CACHED_RESULTS, node.object.cache_info().misses))
        self._cached.clear()


def has_equality(value: Any) -> bool:
    """True for a hashable object whose class defines what equality means, as a truth value."""
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__ or kind.__hash__ in (None, object.__hash__):
        return False
    try:
        return (value == value) is True
    except (TypeError, ValueError, RuntimeError):
        return False


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _is_users(value: Any) -> bool:
    """Whether a call of ``value`` runs code of the user's."""
    if type(value) is FunctionType:
        return kind_of(value.__code__) is CodeKind.USER
    if type(value) is MethodType:
        return _is_users(value.__func__)
    if type(value) is functools.partial:
        return _is_users(value.func)
    return isinstance(value, Module) or (callable(value) and kind_of_class(type(value)) is CodeKind.USER)
