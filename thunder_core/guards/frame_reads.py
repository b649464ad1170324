"""What the entry of one frame says about reads: its method, its module's call, its closure, its globals."""

from __future__ import annotations

import builtins
import inspect
import sys
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.conditions import HOOKS, IDENTITY, NO_ENTRY, NO_HOOKS, not_its_own
from thunder_core.guards.following import Following
from thunder_core.guards.heap import UNREAD_PACKAGES, Heap
from thunder_core.guards.node import MISSING, Node, NodeKind
from thunder_core.guards.plain import is_plain
from thunder_core.guards.source import (
    GlobalSource,
)
from thunder_core.guards.steps import (
    ClosureSource,
    InstanceAttributeSource,
    ItemSource,
    NamespaceSource,
    module_variable,
)

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
"""Variables of ``sys`` that stay as they are."""


class FrameReads:
    """Turns frames into reads of the heap."""

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following
        self.environment = heap.environment
        self._seen: set[tuple[int, int]] = set()
        self._tensor_methods = _added_to_tensors()

    def module_called(self, module: torch.nn.Module) -> None:
        """A module's call was seen: its hooks and ``forward`` were read."""
        heap = self._heap
        node = heap.nodes.get(id(module))
        if node is None and heap.tensors.find(module) is not None:  # held where no code of the user's looks
            node = heap.nodes.get(id(module))
        if node is None or node.called:
            return
        node.called = True
        heap.guard_module(node)
        attributes = node.attributes
        if "forward" not in attributes and not any(self._held_before(node, name) for name in HOOKS):
            heap.guards.append(Check(NamespaceSource(node.source), NO_HOOKS))
        else:
            for name in (*HOOKS, "forward"):
                if name in attributes:
                    heap.meet(attributes[name], InstanceAttributeSource(node.source, name))
            if "forward" not in attributes:
                heap.guards.append(not_its_own(node.source, "forward"))
        self._following.classes.function(type(module), "forward")

    def _held_before(self, module: Node, name: str) -> Any:
        """The content that a dictionary of a module had before the program ran, which may have changed it since."""
        dictionary = module.attributes.get(name)
        node = self._heap.nodes.get(id(dictionary))
        return dictionary if node is None else node.content

    def method_entered(self, receiver: Any, code: CodeType) -> None:
        """A method of ``receiver`` runs that nobody may have named (``__len__``, ``__call__``)."""
        self._following.classes.function(receiver if isinstance(receiver, type) else type(receiver), code.co_name)

    def function_entered(self, code: CodeType, names: CodeNames) -> None:
        """Closure variables of the functions with this code that were reached by a path."""
        for node in self._heap.functions.get(id(code), ()):
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
                    self._heap.stored_cells.setdefault(id(cell), (source, cell, value))
                self._heap.meet(value, source, by_key=True)

    def globals_read(self, code: CodeType, names: CodeNames, namespace: dict[str, Any]) -> None:
        """Globals, and attributes of Python modules, that the code names."""
        key = (id(names), id(namespace))
        if key in self._seen:
            return
        self._seen.add(key)
        heap = self._heap
        heap.distinct.compares_identity |= names.compares_identity
        heap.distinct.compares_objects |= names.compares_objects
        heap.stored_attributes |= names.stored_attributes
        module = str(namespace.get("__name__", ""))
        for name in names.stored_globals:
            source = GlobalSource(module, name, namespace)
            heap.stored_globals.setdefault((id(namespace), name), (source, namespace.get(name, MISSING)))
        for chain in names.chains:
            self._chain(chain, names, namespace, module)
        if names.imports:
            self._imports(names, namespace)
        for name in sorted(self._tensor_methods & names.attributes):
            self._following.classes.function(torch.Tensor, name)
        if ("globals",) in names.chains:
            named = [text for text in code.co_consts if isinstance(text, str) and text in namespace]
            for name in named:
                self._chain((name,), names, namespace, module)
            if not named or names.compares_objects:  # which finds variables by computed names, too
                self._following.read_namespace(namespace, names)

    def _chain(self, chain: tuple[str, ...], names: CodeNames, namespace: dict[str, Any], module: str) -> None:
        name = chain[0]
        value = namespace.get(name, MISSING)
        if value is MISSING:
            if hasattr(builtins, name):  # else an error that the program will raise
                self._heap.builtins_read.setdefault(id(namespace), (namespace, set()))[1].add(name)
            return
        stored = self._heap.stored_globals.get((id(namespace), name))
        if stored is None or stored[1] is value:  # else overwritten before any code that names it ran
            self._heap.read_global((id(namespace), name), value, GlobalSource(module, name, namespace))
        self._attributes_of(value, chain[1:], name, names)

    def _attributes_of(self, value: Any, chain: tuple[str, ...], name: str, names: CodeNames) -> None:
        """Follow attributes through Python modules, and what they lead to."""
        if isinstance(value, ModuleType):
            self._following.module_written(value, names)
        for attribute in chain:
            if not isinstance(value, ModuleType):
                break
            owner, package = value, value.__name__.partition(".")[0]
            self._heap.hidden_states.of_module(owner, chain[chain.index(attribute) :])
            value = vars(owner).get(attribute, MISSING)
            if value is MISSING and hasattr(inspect.getattr_static(type(owner), attribute, None), "__set__"):
                self._property(owner, attribute)
                return
            if owner is sys and value is not MISSING:
                self._of_interpreter(attribute, value, names)
                return
            if value is MISSING or package in UNREAD_PACKAGES:
                return
            name = attribute
            key = (id(vars(owner)), name)
            self._heap.read_global(key, value, module_variable(owner, name), late=package == "torch")
            if isinstance(value, ModuleType):
                self._following.module_written(value, names)
        self._following.follow_all((value,), names, name)

    def _of_interpreter(self, name: str, value: Any, names: CodeNames) -> None:
        """A variable of ``sys``, most of which never change; of ``sys.modules`` the entries that the code names."""
        source = module_variable(sys, name)
        if name == "modules":
            for key in names.keys_of(name) or ():
                module = value.get(key)
                if module is None:
                    self._heap.guards.append(Check(source, NO_ENTRY, key))
                else:
                    self._heap.guards.append(Check(ItemSource(source, key), IDENTITY, module))
                    self._following.follow_python_module(module, names.attributes, names)
        elif is_plain(value) and name not in _FIXED:
            self._heap.read_global((id(vars(sys)), name), value, source)

    def _property(self, module: ModuleType, name: str) -> None:
        """A variable that a module computes: the flags in ``torch.backends``."""
        value = getattr(module, name)
        if is_plain(value):
            self._heap.read_global((id(vars(module)), name), value, module_variable(module, name))

    def _imports(self, names: CodeNames, namespace: dict[str, Any]) -> None:
        """Python modules that the code imports when it runs, as far as they are loaded already."""
        for level, name, members in names.imports:
            package = str(namespace.get("__package__") or namespace.get("__name__", "").rpartition(".")[0])
            above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            module = sys.modules.get(".".join([*above, *([name] if name else [])]))
            if module is not None:
                self._following.follow_python_module(module, members or names.attributes, names)

    def handed_to_library(self, value: Any) -> None:
        """An object whose attributes code that is not observed may read."""
        node = self._heap.nodes.get(id(value))
        if node is not None and node.kind is NodeKind.OBJECT:
            self._heap.objects.read_everything(node, names=True)


def _added_to_tensors() -> frozenset[str]:
    """Methods of tensors that are the user's."""
    methods = [(name, held) for name, held in vars(torch.Tensor).items() if type(held) is FunctionType]
    return frozenset(name for name, held in methods if kind_of(held.__code__) is CodeKind.USER)
