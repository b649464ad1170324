"""Reads that follow from the entry of a frame: of the method, the module's hooks, the closure and the globals."""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Iterable
from types import CodeType, ModuleType
from typing import Any

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import HOOKS, IDENTITY, NO_ENTRY, NO_HOOKS, is_replaced, not_in_dict
from thunder_core.checks.global_state import ORIGINAL_BUILTINS
from thunder_core.checks.plain import is_plain
from thunder_core.checks.source import (
    ClosureSource,
    ItemSource,
    NamespaceSource,
    StoredAttributeSource,
    global_source,
    module_variable,
)
from thunder_core.checks.stored_attributes import MISSING, content_of
from thunder_core.tracing.frames import PACKAGES
from thunder_frontend.observe.class_reads import function_behind
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.contents import CONTAINERS, NodeKind
from thunder_frontend.observe.following import DESCRIBING, Following
from thunder_frontend.observe.heap import Heap, is_library
from thunder_frontend.observe.node import Node
from thunder_frontend.observe.stand_ins import is_conversion

_FIXED = frozenset(
    {
        "api_version",
        "base_prefix",
        "builtin_module_names",
        "byteorder",
        "executable",
        "flags",
        "float_info",
        "hash_info",
    }
    | {"hexversion", "implementation", "int_info", "maxsize", "maxunicode", "orig_argv", "platform", "prefix"}
    | {"stdlib_module_names", "thread_info", "version", "version_info", "warnoptions"}
)
"""Variables of ``sys`` that do not change."""


_DESCRIBES_FUNCTIONS = frozenset({"inspect", "typing"})


class FrameReads:
    """Adds the reads of entered frames to the heap."""

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following
        self._seen: set[tuple[int, int]] = set()
        self._methods: set[tuple[type, int]] = set()
        self._method_names: dict[type, dict[int, list[str]]] = {}

    def module_called(self, module: torch.nn.Module) -> None:
        """A module is called, which reads its hooks and ``forward``."""
        heap = self._heap
        node = heap.nodes.get(id(module))
        if node is None and heap.tensors.find(module) is not None:  # no code of the user has read it
            node = heap.nodes.get(id(module))
        if node is None or node.called:
            return
        node.called = True
        heap.objects.guard_module(node)
        attributes = node.attributes
        if "forward" not in attributes and not any(self._held_before(node, name) for name in HOOKS):
            heap.guards.append(Check(NamespaceSource(node.source), NO_HOOKS))
        else:
            for name in (*HOOKS, "forward"):
                if name in attributes:
                    heap.visit(attributes[name], StoredAttributeSource(node.source, name))
            if "forward" not in attributes:
                heap.guards.append(not_in_dict(node.source, "forward"))
        self._following.classes.function(type(module), "forward")

    def _held_before(self, module: Node, name: str) -> Any:
        """The content of a dictionary of a module before the run of the program, which may have changed it."""
        dictionary = module.attributes.get(name)
        node = self._heap.nodes.get(id(dictionary))
        return dictionary if node is None else node.content

    def method_entered(self, receiver: Any, code: CodeType) -> None:
        """A method of ``receiver`` is called, whose name may not be in any code (``__len__``, ``__call__``)."""
        kind = receiver if issubclass(type(receiver), type) else type(receiver)
        if kind is receiver and not any(id(code) in self._names_in(base) for base in kind.__mro__):
            kind = type(receiver)  # a method of the metaclass
        if (kind, id(code)) in self._methods:
            return
        self._methods.add((kind, id(code)))
        for name in self._names_on_class(kind, code):
            owner = next((base for base in kind.__mro__ if _has_code(vars(base).get(name), code)), kind)
            overridden = any(name in vars(base) for base in kind.__mro__[: kind.__mro__.index(owner)])  # by ``super()``
            self._following.classes.function(owner if overridden else kind, name)

    def _names_on_class(self, kind: type, code: CodeType) -> Iterable[str]:
        """The names of a method with this code: that of its definition, and others of the same function."""
        names = [name for base in kind.__mro__ for name in self._names_in(base).get(id(code), ())]
        return dict.fromkeys((code.co_name, *names))

    def _names_in(self, base: type) -> dict[int, list[str]]:
        """The names of the methods that a class itself defines, by the ids of their code; read once."""
        if base not in self._method_names:
            found = self._method_names[base] = {}
            for name, attribute in vars(base).items():
                behind = function_behind(attribute)
                if behind is not None:
                    found.setdefault(id(behind[1].__code__), []).append(name)
        return self._method_names[base]

    def function_entered(self, code: CodeType, names: CodeNames) -> None:
        """Read the closure variables of visited functions with this code."""
        for node in self._heap.functions.get(id(code), ()):
            if node.called or node.object.__closure__ is None:
                continue
            node.called = True
            for index, (name, cell) in enumerate(zip(code.co_freevars, node.object.__closure__, strict=True)):
                source, value = ClosureSource(node.source, index, name), content_of(cell)
                if value is MISSING or self._heap.is_overwritten_cell(cell, value):
                    continue
                if name in names.stored_cells:
                    self._heap.may_assign_cell(cell, source)
                self._heap.visit(value, source, by_key=True)

    def globals_read(self, code: CodeType, names: CodeNames, namespace: dict[str, Any]) -> None:
        """Read the global variables, and attributes of Python modules, whose names are in the code."""
        key = (id(names), id(namespace))
        if key in self._seen:
            return
        self._seen.add(key)
        heap = self._heap
        heap.distinct.compares_identity |= names.compares_identity
        heap.distinct.compares_objects |= names.compares_objects
        heap.stored_attributes |= names.stored_attributes
        heap.may_assign(namespace, names.stored_globals)
        for chain in names.chains:
            self._chain(chain, names, namespace)
        if names.imports:
            self._imports(names, namespace)
        self._following.classes.read_library(torch.Tensor, names)
        if ("__import__",) in names.chains:
            for name in (text for text in code.co_consts if isinstance(text, str)):
                if isinstance(module := sys.modules.get(name), ModuleType):
                    self._following.follow_python_module(module, names.attributes, names)
        if ("globals",) in names.chains:
            named = [text for text in code.co_consts if isinstance(text, str) and text in namespace]
            for name in named:
                self._chain((name,), names, namespace)
            heap.may_assign(namespace, named if names.deletes_by_key else ())
            if not named or names.compares_objects:  # the code may search a variable by a computed name
                self._following.read_namespace(namespace, names)

    def _chain(self, chain: tuple[str, ...], names: CodeNames, namespace: dict[str, Any]) -> None:
        name = chain[0]
        value = namespace.get(name, MISSING)
        if value is MISSING or is_conversion(value):
            value = vars(builtins).get(name, MISSING)
            if value is MISSING:  # the program raises an error
                return
            self._heap.builtins_read.setdefault(id(namespace), (namespace, set()))[1].add(name)
            if not is_replaced(value, ORIGINAL_BUILTINS.get(name)):
                return
            namespace = vars(builtins)  # others have put it there, as a variable
        if self._heap.is_overwritten(namespace, name, value):  # before the program read it
            self._following.reach(value, names, name)
        else:
            self._heap.read_global((id(namespace), name), value, global_source(namespace, name))
        self._attributes_of(value, chain[1:], name, names)

    def _attributes_of(self, value: Any, chain: tuple[str, ...], name: str, names: CodeNames) -> None:
        """Read a chain of attributes through Python modules, and follow its value."""
        if isinstance(value, ModuleType):
            self._following.module_written(value, names)
            self._following.probe_python_module(value, names, name)
        for attribute in chain:
            if not isinstance(value, ModuleType):
                break
            owner, package = value, value.__name__.partition(".")[0]
            self._heap.hidden_states.of_module(owner, chain[chain.index(attribute) :])
            self._heap.state_reads.of_module(owner, attribute)
            value = vars(owner).get(attribute, MISSING)
            if value is MISSING and hasattr(inspect.getattr_static(type(owner), attribute, None), "__set__"):
                self._property(owner, attribute)
                return
            if owner is sys and value is not MISSING:
                self._of_interpreter(attribute, value, names)
                return
            if value is MISSING and "__getattr__" in vars(owner) and not is_library(package):
                self._following.variable_missed(owner, attribute)
            if value is MISSING or package in PACKAGES:
                return
            name = attribute
            key = (id(vars(owner)), name)
            self._heap.read_global(key, value, module_variable(owner, name), late=is_library(package))
            if isinstance(value, ModuleType):
                self._following.module_written(value, names)
                self._following.probe_python_module(value, names, name)
        self._following.follow_all((value,), names, name)

    def _of_interpreter(self, name: str, value: Any, names: CodeNames) -> None:
        """Read a variable of ``sys``, most of which do not change; of ``sys.modules`` the items with these keys."""
        source = module_variable(sys, name)
        if name == "modules":
            keys = names.dictionaries.keys_of(name)
            if keys is None:  # computed: the code may get any of them
                wanted = {name for name in names.attributes if not name.startswith("__")}
                for module in tuple(value.values()):
                    if isinstance(module, ModuleType):
                        self._following.follow_python_module(module, wanted, names)
            for key in keys or ():
                module = value.get(key)
                if module is None:
                    self._heap.guards.append(Check(source, NO_ENTRY, key))
                else:
                    self._heap.guards.append(Check(ItemSource(source, key), IDENTITY, module))
                    self._following.follow_python_module(module, names.attributes, names)
        elif (is_plain(value) and name not in _FIXED) or isinstance(value, list):
            self._heap.read_global((id(vars(sys)), name), value, source)
            self._following.follow_all((value,), names, name)

    def _property(self, module: ModuleType, name: str) -> None:
        """Read a property of a module, such as the flags in ``torch.backends``."""
        value = getattr(module, name)
        if is_plain(value):
            self._heap.read_global((id(vars(module)), name), value, module_variable(module, name))

    def _imports(self, names: CodeNames, namespace: dict[str, Any]) -> None:
        """Read the modules that the code imports, if they are loaded."""
        for level, name, members in names.imports:
            package = str(namespace.get("__package__") or namespace.get("__name__", "").rpartition(".")[0])
            above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            module = sys.modules.get(".".join([*above, *([name] if name else [])]))
            if module is not None:
                self._following.follow_python_module(module, members or names.attributes, names)

    def passed_to_library(self, value: Any, names: CodeNames, module: Any) -> None:
        """Read an argument of code of a Python module that is not observed, and what it holds."""
        if type(value) is ModuleType and not is_library(value.__name__.partition(".")[0]):
            self._following.read_namespace(vars(value), names)
        self._following.classes.read_special(value if issubclass(type(value), type) else type(value))
        node = self._heap.nodes.get(id(value))
        if node is not None and node.kind in (NodeKind.OBJECT, *CONTAINERS):
            self._heap.objects.read_everything(node, names=True)
        elif node is not None and node.kind is NodeKind.FUNCTION and module in _DESCRIBES_FUNCTIONS:
            self._following.describe(node, DESCRIBING)


def _has_code(attribute: Any, code: CodeType) -> bool:
    """Whether a class attribute is a method with this code."""
    behind = function_behind(attribute)
    return behind is not None and behind[1].__code__ is code
