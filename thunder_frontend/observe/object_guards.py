"""Guards by kind of object: containers, functions, and objects whose reads cannot be observed."""

from __future__ import annotations

import abc
import collections
import contextvars
import functools
import gc
import weakref
from types import CodeType, FunctionType, MappingProxyType, MethodType, MethodWrapperType
from typing import Any, Final

from torch import Tensor
from torch.nn import Module, Parameter

from thunder_core.checks.arrays import array_content, is_array, is_buffer
from thunder_core.checks.check import Check
from thunder_core.checks.conditions import (
    ARRAY,
    CACHED_RESULTS,
    CODE,
    EQUALITY,
    GONE,
    IDENTITY,
    LENGTH,
    MEMBERS,
    NO_ENTRY,
    SAME_ITEMS,
    STORED_LENGTH,
    TYPE,
    VALUE,
    attributes_check,
    class_checks,
    identity_check,
    keys_check,
)
from thunder_core.checks.global_state import state_guard
from thunder_core.checks.originals import is_compiled
from thunder_core.checks.plain import copy_content, is_plain, is_plain_content, same_items_of
from thunder_core.checks.source import (
    AttributeSource,
    ClosureSource,
    ConstantSource,
    ContextSource,
    ItemSource,
    ProxySource,
    ResultSource,
    Source,
    StoredAttributeSource,
    Unset,
    is_argument,
    item_source,
)
from thunder_core.checks.stored_attributes import MISSING, PROXIES, content_of, namespace_of, referent_of
from thunder_core.checks.stored_content import is_overridden
from thunder_core.errors import RunEagerly
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import CodeKind, kind_of, kind_of_class
from thunder_frontend.observe.cached_functions import CachedFunction, results_of
from thunder_frontend.observe.contents import CONTAINERS, MODULE_DICTIONARIES, NodeKind, node_kind, parts_of
from thunder_frontend.observe.node import Node, make_node
from thunder_frontend.observe.records import Records

GUARDED_APART: Final[set[str]] = set()
"""Classes of PyTorch, as ``"module:class"``, whose objects a plugin guards."""
_CLASS = "type()"
_IN_ORDER = "__dict__ in order"
_MOST_RESULTS: Final = 64
_NESTED = frozenset({list, dict, set, tuple})


class ObjectGuards:
    """Adds guards of nodes to the records, and visits the objects to which the nodes refer.

    Attributes:
        buffers: the visited NumPy arrays and other buffers.
        cached_before: by id, results of functions of ``functools.lru_cache`` that were visited before they were used.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._guards = records.guards
        self._classes: set[type] = set()
        self.buffers: list[Node] = []
        self._flat: list[Check] = []  # for programs that compare objects by identity
        self.cached_before: dict[int, Any] = {}
        self._cached: list[tuple[Node, tuple[int, int]]] = []
        self._misses: dict[CodeType, list[list[Any]]] = {}  # cached functions and their misses, by the code they call

    def guard_class_definition(self, kind: type) -> None:
        """Guard the bases of a class and the names that it defines, once per class."""
        if kind not in self._classes:
            self._classes.add(kind)
            self._guards.extend(class_checks(kind))

    def guard_module(self, node: Node) -> None:
        """Guard the classes of a module and of its parents, from the root down."""
        if node.reached:
            return
        node.reached = True
        if node.parent is not None:
            self.guard_module(node.parent)
        self._guards.append(Check(node.source, TYPE, type(node.object)))
        self.guard_class_definition(type(node.object))

    def guard_class(self, node: Node) -> None:
        """Guard the identity of a class."""
        kind = node.object
        self._guards.append(Check(node.source, IDENTITY, kind))
        self._records.visited_abstract |= isinstance(kind, abc.ABCMeta) and kind_of_class(kind) is CodeKind.USER

    def guard_object(self, node: Node) -> None:
        """Guard the class of an object, whose attributes are read by name."""
        value, source = node.object, node.source
        self._records.watch(value, source)
        self._guards.append(Check(source, TYPE, type(value)))
        if is_buffer(value):  # subclasses of NumPy arrays, objects of ctypes
            self.guard_buffer(node)
        if is_compiled(value):
            for inner, path in _compiled_from(node):
                self._records.visit(inner, path)
        elif any(f"{module_of(base)}:{base.__qualname__}" in GUARDED_APART for base in type(value).__mro__):
            self._guards.append(identity_check(source, value))
        elif module_of(type(value)).partition(".")[0] == "torch":  # its code is not observed
            self.read_everything(node)
        for name in parts_of(value):
            self._records.visit(getattr(value, name), AttributeSource(source, name))

    def guard_content(self, node: Node) -> None:
        """Guard the whole content of a container."""
        if node.reached or node.kind not in CONTAINERS:
            return
        node.reached = True
        value, source, kind = node.object, node.source, type(node.object)
        recorded = kind is list or kind is dict  # the program may have changed it
        content = kind(node.content) if recorded else value
        if is_plain_content(content):
            self._guards.append(Check(source, VALUE, copy_content(content)))
            self._add_nested(node)
            nested = [item for _, item, _ in node.items() if type(item) in (list, dict, set)]
            if len(nested) > 1:  # a write to one may be a write to another
                self._guards.append(Check(source, SAME_ITEMS, same_items_of(content)))
            elif len(content) > 1:
                self._flat.append(Check(source, SAME_ITEMS, same_items_of(content)))
            return
        self._guards.append(Check(source, TYPE, kind))
        if isinstance(value, collections.deque):
            self._guards.append(Check(AttributeSource(source, "maxlen"), VALUE, value.maxlen))
        if node.kind is NodeKind.SET:
            self._read_set(node)
            return
        stored = is_overridden(value)
        if node.kind is NodeKind.DICTIONARY:
            self._guards.append(keys_check(source, tuple(node.content), stored=stored))
            self._records.distinct.members(node.content)
            self._visit_members(node)
        else:
            self._guards.append(Check(source, STORED_LENGTH if stored else LENGTH, len(node.content)))
        if isinstance(value, tuple):
            value = self._records.stand_ins.tuple_at(source, value)
        for key, item, path in node.items():
            if key not in node.guarded_keys:
                node.guarded_keys.add(key)
                self._records.visit(value[key] if isinstance(value, tuple) else item, path)
            self._guard_key(key)

    def guard_class_of(self, node: Node) -> None:
        """Guard the class of a container, of whose content code reads nothing or single items."""
        if not node.reached and _CLASS not in node.guarded:
            node.guarded.add(_CLASS)
            self._guards.append(Check(node.source, TYPE, type(node.object)))

    def _read_set(self, node: Node) -> None:
        """Guard the items of a set and their order; their paths begin at the items themselves."""
        self._guards.append(Check(node.source, MEMBERS, node.content))
        self._records.distinct.members(node.content)
        self._visit_members(node)

    def _visit_members(self, node: Node) -> None:
        """Visit the items of a set or the keys of a dictionary, which a guard compares by identity."""
        for item in node.content:
            if _has_content(item):
                self._records.visit(item, ConstantSource(item, type(item).__name__))

    def _add_nested(self, node: Node) -> None:
        """Create nodes of the containers in a plain container, so that writes to them are detected."""
        for _, item, source in node.items():
            if type(item) in _NESTED and id(item) not in self._records.nodes:
                nested = self._records.nodes[id(item)] = make_node(item, source, node_kind(item))
                nested.reached = True
                self._add_nested(nested)

    def read_entry(self, node: Node, key: Any) -> None:
        """Guard one item of a dictionary, or its absence."""
        if node.reached or key in node.guarded_keys:
            return
        node.guarded_keys.add(key)
        self.guard_class_of(node)
        if key not in node.content:
            if key not in node.object:  # else the program has stored it before it could read it
                self._guards.append(Check(node.source, NO_ENTRY, key))
        elif dict.get(node.object, key, MISSING) is node.content[key]:  # else the program has overwritten it
            self._records.visit(node.content[key], item_source(node.object, node.source, key), by_key=True)

    def _guard_key(self, key: Any) -> None:
        """Guard an object that is a key of a dictionary, if it is compared by identity."""
        node = self._records.nodes.get(id(key))
        if node is not None and node.kind is NodeKind.OBJECT:
            self.guard_opaque(node)

    def guard_function(self, node: Node) -> None:
        """Guard a Python function by code and defaults; its closure is read when it runs."""
        function: FunctionType = node.object
        code = function.__code__
        if kind_of(code) not in (CodeKind.USER, CodeKind.MODULE):
            self._guards.append(Check(node.source, IDENTITY, function))
            self._read_wrapped(function, node)
            return
        self._guards.append(Check(node.source, CODE, code))
        self._records.functions.setdefault(id(code), []).append(node)
        self._records.keep(code)
        for name in ("__defaults__", "__kwdefaults__"):
            value = getattr(function, name)
            if value:
                self._records.visit(value, AttributeSource(node.source, name))
        # before its frame is entered: a hook of `sys.setprofile` restores the variables of the frame
        for index, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__ or (), strict=True)):
            self._records.stand_ins.visit(content_of(cell), ClosureSource(node.source, index, name))

    def _read_wrapped(self, wrapper: FunctionType, node: Node) -> None:
        """Read the user's functions in the closure of the result of a decorator, such as ``torch.no_grad()``.

        The frames of these functions are observed, and need a path; that of the wrapper is not observed. It may select
        the function from a dictionary: that of ``functools.singledispatch`` grows by ``register``.
        """
        if hasattr(wrapper, "__wrapped__"):
            self._read_closure(wrapper, node.source, {id(wrapper)})

    def _read_closure(self, function: FunctionType, source: Source, read: set[int]) -> None:
        """Read the closure of a function that is not observed, and of such functions in it that are not in ``read``."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for index, (name, cell) in enumerate(cells):
            held, path = content_of(cell), ClosureSource(source, index, name)
            is_function = type(held) is FunctionType
            registry = type(held) is dict and any(map(_is_users, held.values()))
            if _is_users(held) or registry or (is_function and hasattr(held, "__wrapped__")):
                self._records.visit(held, path)
            elif is_function and id(held) not in read:
                self._guards.append(Check(path, IDENTITY, held))
                self._read_closure(held, path, read | {id(held)})

    def read_variables(self, node: Node) -> None:
        """Guard the values of the closure variables of a function. Code that has the cells may assign these."""
        function: FunctionType = node.object
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for index, (name, cell) in enumerate(cells):
            source, value = ClosureSource(node.source, index, name), content_of(cell)
            if not self._records.is_overwritten_cell(cell, value):
                self._records.may_assign_cell(cell, source)
                self._records.visit(value, source)

    def guard_opaque(self, node: Node) -> None:
        """Guard an object whose reads cannot be observed by its ``__eq__``, or by identity if it has none."""
        value, source = node.object, node.source
        kind = type(value)
        if kind in PROXIES:
            self._guard_proxy(node)
            return
        self._records.watch(value, source)
        self._records.getters.visit(value)
        if isinstance(value, MethodWrapperType):
            self._records.visit_receiver(value, source)
        if isinstance(value, weakref.ref):
            self._guards.append(Check(source, TYPE, kind))
            self._records.visit(value(), ResultSource(source))
            return
        if is_buffer(value):
            if is_array(value) and value.dtype.hasobject:
                raise RunEagerly(f"the program reads {source.describe()}, an array of Python objects")
            self._guards.append(Check(source, TYPE, kind))
            self.guard_buffer(node)
            return
        if isinstance(value, MappingProxyType):
            self._read_mapping(node)
            return
        if isinstance(value, CachedFunction):
            self._cached.append((node, value.cache_info()[:2]))
            self._records.visit(value.__wrapped__, AttributeSource(source, "__wrapped__"))
            wrapped = getattr(value.__wrapped__, "__func__", value.__wrapped__)
            if isinstance(wrapped, FunctionType):
                self._misses.setdefault(wrapped.__code__, []).append([value, value.cache_info().misses])
        if isinstance(value, contextvars.ContextVar):
            self._read_context(node)
        if has_equality(value):
            state = state_guard(kind)
            self._guards.extend([Check(source, EQUALITY, value), *([] if state is None else [state])])
            return
        self._guards.append(identity_check(source, value))

    def _guard_proxy(self, node: Node) -> None:
        """Guard the object behind a weak proxy, or that there is none."""
        referent = referent_of(node.object)
        self._guards.append(Check(node.source, TYPE, type(node.object)))
        if referent is None:
            self._guards.append(Check(node.source, GONE, None))
        else:
            self._records.visit(referent, ProxySource(node.source))

    def guard_buffer(self, node: Node) -> None:
        """Guard the content of an array or buffer, unless the program turns it into a tensor."""
        if node.kind is not NodeKind.BUFFER:  # its changes are repeated
            self._records.buffers.visit(node.object, node.source.describe())
        self.buffers.append(node)

    def read_buffer(self, node: Node) -> None:
        """Code reads an array in Python, beside turning it into a tensor: its content is guarded in any case."""
        node.reached |= node in self.buffers

    def _read_mapping(self, node: Node) -> None:
        """Guard a read-only view of a dictionary."""
        self._guards.append(Check(node.source, TYPE, type(node.object)))
        self._guards.append(keys_check(node.source, tuple(node.object)))
        for key, item in node.object.items():
            self._records.visit(item, ItemSource(node.source, key))

    def _read_context(self, node: Node) -> None:
        """Guard the value of a context variable, or that it is not set."""
        value = self._records.context_before.get(node.object, Unset.UNSET)
        self._records.keep(value)
        self._records.visit(value, ContextSource(node.source))
        if value is Unset.UNSET:  # its default does not change
            default = self._records.context_value(node.object)
            self._records.visit(default, ConstantSource(default, f"{node.object.name}_default"))

    def guard_attribute_names(self, node: Node, *, ordered: bool) -> None:
        """Guard the names in the ``__dict__`` of an object, and their order if ``ordered``."""
        own = namespace_of(node.object)
        if own is None or not own.keys() >= node.attributes.keys() or _IN_ORDER in node.guarded:
            return
        if ordered:
            node.guarded.add(_IN_ORDER)
        elif "__dict__" in node.guarded:
            return
        node.guarded.add("__dict__")
        names = tuple(node.attributes)
        if node.kind is NodeKind.MODULE:
            names = tuple([name for name in own if name in node.attributes or name in MODULE_DICTIONARIES])
        self._guards.append(attributes_check(node.source, names, ordered=ordered))

    def read_everything(self, node: Node, *, names: bool = False) -> None:
        """Guard every attribute of an object, and of those that it holds; also the sets of names, if ``names``.

        Of a container, guard those of its items.
        """
        pending, seen = [node], {id(node)}
        while pending:
            one = pending.pop()
            if one.kind in CONTAINERS:
                self.guard_content(one)
            held = one.content if one.kind in CONTAINERS else self._read_attributes(one, names=names)
            for value in held.values() if isinstance(held, dict) else held:
                child = self._records.nodes.get(id(value))
                if child is not None and child.kind in (NodeKind.OBJECT, *CONTAINERS) and id(child) not in seen:
                    seen.add(id(child))
                    pending.append(child)

    def _read_attributes(self, node: Node, *, names: bool) -> list[Any]:
        """Guard all attributes of an object; those that were not guarded before."""
        if names:
            self.guard_attribute_names(node, ordered=True)
        found = {name: value for name, value in node.attributes.items() if name not in node.guarded}
        for name, value in found.items():
            node.guarded.add(name)
            self._records.visit(value, node.attribute_source(name))
        return list(found.values())

    def cached_function_of(self, code: CodeType) -> Any:
        """The function of ``functools.lru_cache`` that has just called this code; None if others called it.

        It counts a miss before it calls its function, which others may call without the cache.
        """
        for known in self._misses.get(code, ()):
            misses = known[0].cache_info().misses
            if misses != known[1]:
                known[1] = misses
                return known[0]
        return None

    def visit_results(self, function: Any) -> tuple[Any, ...]:
        """The results that a function of ``functools.lru_cache`` holds, at most 64: those used last."""
        results = results_of(function)[-_MOST_RESULTS:]
        for value in results:
            if self._records.nodes.get(id(value)) is None:
                self.visit_cached(value)
                self.cached_before[id(value)] = value
        return results

    def visit_cached(self, value: Any) -> None:
        """A result of a function of ``functools.lru_cache``: later calls get the same object."""
        if isinstance(value, type):
            self._records.made_classes.exclude(value)
        elif _has_content(value):
            self._records.visit(value, ConstantSource(value, f"a cached {type(value).__name__}"), by_key=True)

    def called_cached_functions(self) -> tuple[Any, ...]:
        """Functions of ``functools.lru_cache`` with more hits or misses than at the first visit."""
        return tuple([node.object for node, calls in self._cached if node.object.cache_info()[:2] != calls])

    def finish(self) -> None:
        """Add the guards that depend on the whole run of the program."""
        for node in self.buffers:
            # arguments that become tensors may differ in each call
            lifted = (
                id(node.object) in self._records.tensors.requested and is_argument(node.source) and not node.reached
            )
            self._guards.append(Check(node.source, ARRAY, array_content(node.object, content=not lifted)))
        self.buffers.clear()
        for node, _ in self._cached:
            for held in gc.get_referents(node.object):  # results by arguments
                self._records.distinct.members(held if type(held) is dict else ())
            self._guards.append(Check(node.source, CACHED_RESULTS, node.object.cache_info().misses))
        self._cached.clear()
        if self._records.distinct.compares_identity:
            self._guards.extend(self._flat)
        self._flat.clear()


def _compiled_from(node: Node) -> list[tuple[Any, Source]]:
    """The programs from which a compiled program was compiled, with their paths."""
    return [
        (value, StoredAttributeSource(node.source, name))
        for name, value in node.attributes.items()
        if name != "__wrapped__"
        and (isinstance(value, Module | FunctionType | MethodType) or (is_compiled(value) and callable(value)))
    ]


def _has_content(value: Any) -> bool:
    """Whether an object that is compared by identity may hold others: of tensors, those of PyTorch with attributes.

    The data of a tensor is an input where the program uses it.
    """
    if isinstance(value, Tensor):
        return type(value) in (Tensor, Parameter) and bool(namespace_of(value))
    return not is_plain(value)


def has_equality(value: Any) -> bool:
    """Whether an object is hashable and its class defines an equality that returns a bool."""
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__ or kind.__hash__ in (None, object.__hash__):
        return False
    try:
        return (value == value) is True
    except (TypeError, ValueError, RuntimeError):
        return False


def _is_users(value: Any) -> bool:
    """Whether a call of ``value`` runs code of the user."""
    if type(value) is FunctionType:
        return kind_of(value.__code__) is CodeKind.USER
    if type(value) is MethodType:
        return _is_users(value.__func__)
    if type(value) is functools.partial:
        return _is_users(value.func)
    return isinstance(value, Module) or (callable(value) and kind_of_class(type(value)) is CodeKind.USER)
