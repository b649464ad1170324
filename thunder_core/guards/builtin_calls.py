"""What the user's code reads by calls of builtin functions: attributes by computed names, identities, classes."""

from __future__ import annotations

import abc
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from thunder_core.guards.abstract_stack import UNKNOWN
from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.code_names import CodeNames
from thunder_core.guards.conditions import NO_ATTRIBUTE, NO_SUBCLASS, SUBCLASS
from thunder_core.guards.following import Following
from thunder_core.guards.heap import Heap
from thunder_core.guards.source import ConstantSource
from thunder_core.guards.watched_builtins import RAISED, WatchedBuiltins

_ALWAYS = frozenset({"id", "hash", "callable"})
_BY_NAME = frozenset({"getattr", "hasattr"})
_CLASSES = frozenset({"isinstance", "issubclass"})


class BuiltinCalls:
    """Turns calls of builtin functions into reads of the heap.

    Attributes:
        watched: replaces the functions as far as the code that was entered names them.
    """

    def __init__(self, heap: Heap, following: Following) -> None:
        self._heap = heap
        self._following = following
        self._extended: dict[tuple[int, str], tuple[CodeNames, CodeNames]] = {}
        self._asked: set[tuple[int, str]] = set()
        self.watched = WatchedBuiltins(
            {
                "id": lambda _, args, result: self._identified(args[0]),
                "hash": lambda _, args, result: self._hashed(args[0]),
                "callable": lambda _, args, result: self._called_callable(args[0], result),
                "getattr": lambda names, args, result: self._attribute(
                    names, *args[:2], found=_has(args[0], args[1], result, args)
                ),
                "hasattr": lambda names, args, result: self._attribute(names, *args, found=result is True),
                "isinstance": lambda _, args, result: self._instance(type(args[0]), args[1], result),
                "issubclass": lambda _, args, result: self._instance(args[0], args[1], result),
            },
            heap.distinct.hashed,
        )

    def frame_entered(self, names: CodeNames, namespace: dict[str, Any]) -> None:
        """Code is about to run that may call such functions."""
        called = {chain[0] for chain in names.chains}
        watched = called & _ALWAYS
        watched |= called & self.watched.answers.keys()
        if names.whole:
            watched |= called & _BY_NAME
        if called & _CLASSES and (self._heap.met_abstract or _names_abstract(names, namespace)):
            watched |= called & _CLASSES
        if watched:
            self.watched.watch(name for name in watched if name not in namespace)
        if names.compares_objects:
            self.watched.watch_hashes()

    def _identified(self, value: Any) -> None:
        self._heap.distinct.identified(value)

    def _hashed(self, value: Any) -> None:
        kind: Any = type(value)
        if kind.__hash__ is object.__hash__ or isinstance(value, torch.Tensor):
            self._identified(value)
        elif isinstance(value, tuple | frozenset):
            for item in value:
                self._hashed(item)

    def _called_callable(self, value: Any, result: Any) -> None:
        node = self._heap.nodes.get(id(value))
        if result is False and node is not None:
            self._absent(node.source, value, "__call__")

    def _attribute(self, names: CodeNames, value: Any, name: Any, *, found: bool) -> None:
        """The code asked ``value`` for an attribute whose name it computes."""
        if type(name) is not str:
            return
        if isinstance(value, ModuleType):
            self._following.follow_python_module(value, (name,), names)
            return
        node = self._heap.nodes.get(id(value))
        if node is None and isinstance(value, type):
            node = self._heap.class_node(value)
        if node is None:
            return
        if found:
            self._following.follow(node, self._with(names, name), None)
        elif name not in node.attributes and name not in node.edges:
            self._absent(node.source, value, name)

    def _absent(self, source: Any, value: Any, name: str) -> None:
        if (id(value), name) not in self._asked:
            self._asked.add((id(value), name))
            self._heap.guards.append(Check(source, NO_ATTRIBUTE, name))

    def _with(self, names: CodeNames, name: str) -> CodeNames:
        key = (id(names), name)
        if key not in self._extended:
            attributes = names.attributes | {name}
            whole = frozenset({UNKNOWN}) if name == "__dict__" else frozenset()
            extended = replace(names, attributes=attributes, probes=frozenset(), whole=whole, reads_order=bool(whole))
            self._extended[key] = (names, extended)
        return self._extended[key][1]

    def _instance(self, kind: Any, classes: Any, result: Any) -> None:
        """Abstract classes of the user's take classes in that are registered later."""
        for base in classes if isinstance(classes, tuple) else (classes,):
            if isinstance(base, abc.ABCMeta) and isinstance(kind, type) and kind_of_class(base) is CodeKind.USER:
                condition = SUBCLASS if issubclass(kind, base) else NO_SUBCLASS
                self._heap.guards.append(Check(ConstantSource(base, base.__name__), condition, kind))


def _has(value: Any, name: Any, result: Any, args: tuple[Any, ...]) -> bool:
    if result is RAISED:
        return False
    return len(args) < 3 or result is not args[2] or hasattr(value, name)


def _names_abstract(names: CodeNames, namespace: dict[str, Any]) -> bool:
    return any(_is_abstract(namespace.get(chain[0])) for chain in names.chains)


def _is_abstract(value: Any) -> bool:
    return isinstance(value, abc.ABCMeta) and kind_of_class(value) is CodeKind.USER
