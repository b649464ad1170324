"""Reads by calls of builtin functions in the user's code: attributes by computed names, identities, classes."""

from __future__ import annotations

import abc
import builtins
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import NO_ATTRIBUTE, NO_SUBCLASS, SUBCLASS
from thunder_core.checks.source import ConstantSource
from thunder_core.tracing.frames import CodeKind, call_for_program, is_users, kind_of_class
from thunder_frontend.observe.abstract_stack import UNKNOWN
from thunder_frontend.observe.bytecode import names_of
from thunder_frontend.observe.code_names import CodeNames
from thunder_frontend.observe.following import Following
from thunder_frontend.observe.heap import Heap

OnCall = Callable[[CodeNames, tuple[Any, ...], Any], None]
_BUILTINS = vars(builtins)
_RAISED = object()
"""The result of a call that raised an exception."""


class WatchedBuiltins:
    """Replaces builtin functions during the run, to observe calls by the user's code in the observed thread.

    Attributes:
        active: False while Thunder's code runs: between `suspend` and `resume`.
        replacements: by name of the builtin, a function that the user's code calls instead. If that returns
            `NotImplemented`, the builtin is called.

    Args:
        callbacks: by name of the builtin, functions of the names in the calling code, the arguments and the result.
        on_hash: is called with each tensor whose hash is computed: sets and dictionaries compare tensors by identity.
        pause, resume: are called before and after callbacks, which are not observed.
    """

    def __init__(
        self,
        callbacks: dict[str, OnCall],
        on_hash: Callable[[torch.Tensor], None],
        pause: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        self._callbacks = callbacks
        self._pause, self._resume = pause, resume
        self._on_hash = on_hash
        self.active = True
        self.replacements: dict[str, Callable[..., Any]] = {}
        self._thread = threading.get_ident()
        self._replaced: dict[str, tuple[Any, Any]] = {}
        self._hash_of_tensors: tuple[Any, Any] | None = None
        self._originals: dict[Any, Any] = {}

    def watch(self, names: Iterable[str]) -> None:
        """Replace the builtins among ``names`` that have a callback, from the next `resume` until `restore`."""
        for name in names:
            if (name in self._callbacks or name in self.replacements) and name not in self._replaced:
                original = _BUILTINS[name]
                is_replaced = name in self.replacements
                wrapper = self._replacement(original) if is_replaced else self._wrapper(original, self._callbacks[name])
                self._replaced[name] = (original, wrapper)

    def watch_hashes(self) -> None:
        """Also observe hashes of tensors, until `restore`."""
        if self._hash_of_tensors is None:
            original = torch.Tensor.__hash__
            on_hash, identity = self._on_hash, builtins.id

            def __hash__(tensor: torch.Tensor) -> int:
                if self._observes():
                    on_hash(tensor)
                return identity(tensor)

            self._hash_of_tensors = (original, __hash__)
            torch.Tensor.__hash__ = __hash__  # type: ignore[method-assign]

    def suspend(self) -> None:
        """Thunder's code runs, and PyTorch's for it, until `resume`: it calls the builtins.

        A call of a replaced builtin takes 0.3 us longer. Of the 31,000 calls of ``isinstance`` while a model of Hugging
        Face is recorded, 47 are the program's.
        """
        self.active = False
        for name, (original, wrapper) in self._replaced.items():
            if _BUILTINS.get(name) is wrapper:
                _BUILTINS[name] = original

    def resume(self) -> None:
        """The program runs again."""
        self.active = True
        for name, (original, wrapper) in self._replaced.items():
            if _BUILTINS.get(name) is original:
                _BUILTINS[name] = wrapper

    def restore(self) -> None:
        """Restore the builtins and the hash of tensors, except for those that the program has replaced itself."""
        self.suspend()
        self._replaced.clear()
        if self._hash_of_tensors is not None and torch.Tensor.__hash__ is self._hash_of_tensors[1]:
            torch.Tensor.__hash__ = self._hash_of_tensors[0]  # type: ignore[method-assign]
        self._hash_of_tensors = None

    def original(self, value: Any) -> Any:
        """The builtin that a function replaces, also after `restore`; any other object itself."""
        return self._originals.get(value, value) if type(value) is FunctionType else value

    def _observes(self) -> bool:
        return self.active and threading.get_ident() == self._thread

    def _replacement(self, original: Callable[..., Any]) -> Callable[..., Any]:
        replacement = self.replacements[original.__name__]

        def builtin(*args: Any) -> Any:
            if not is_users(sys._getframe(1).f_code) or not self._observes():
                return call_for_program(original, args, {})
            given = replacement(*args)
            return call_for_program(original, args, {}) if given is NotImplemented else given

        return self._named(builtin, original)

    def _wrapper(self, original: Callable[..., Any], callback: OnCall) -> Callable[..., Any]:
        def builtin(*args: Any) -> Any:
            code = sys._getframe(1).f_code
            if not is_users(code) or not self._observes():
                return call_for_program(original, args, {})
            result: Any = _RAISED
            try:
                result = call_for_program(original, args, {})
            finally:
                self._pause()
                try:
                    callback(names_of(code), args, result)
                finally:
                    self._resume()
            return result

        return self._named(builtin, original)

    def _named(self, builtin: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
        builtin.__name__ = builtin.__qualname__ = original.__name__
        self._originals[builtin] = original
        return builtin


_ALWAYS = frozenset({"id", "hash", "callable"})
_BY_NAME = frozenset({"getattr", "hasattr"})
_CLASSES = frozenset({"isinstance", "issubclass"})


class BuiltinCalls:
    """Adds the reads of builtin functions to the heap.

    Args:
        pause, resume: see `WatchedBuiltins`.

    Attributes:
        watched: replaces the builtins whose names are in entered code.
    """

    def __init__(self, heap: Heap, following: Following, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._heap = heap
        self._following = following
        self._extended: dict[tuple[int, str], tuple[CodeNames, CodeNames]] = {}
        self._absences: set[tuple[int, str]] = set()
        self.watched = WatchedBuiltins(
            {
                "id": lambda _, args, result: self._identified(args[0]),
                "hash": lambda _, args, result: self._hashed(args[0]),
                "callable": lambda _, args, result: self._called_callable(args[0], result),
                "getattr": lambda names, args, result: self._attribute(
                    names, *args[:2], exists=_has(args[0], args[1], result, args)
                ),
                "hasattr": lambda names, args, result: self._attribute(names, *args, exists=result is True),
                "isinstance": lambda _, args, result: self._instance(type(args[0]), args[1], result),
                "issubclass": lambda _, args, result: self._instance(args[0], args[1], result),
            },
            heap.distinct.hashed,
            pause,
            resume,
        )

    def frame_entered(self, names: CodeNames, namespace: dict[str, Any]) -> None:
        """A frame is entered whose code may call builtins."""
        called = {chain[0] for chain in names.chains}
        watched = called & _ALWAYS
        watched |= called & self.watched.replacements.keys()
        if names.whole:
            watched |= called & _BY_NAME
        if called & _CLASSES and (self._heap.visited_abstract or _names_abstract(names, namespace)):
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

    def _attribute(self, names: CodeNames, value: Any, name: Any, *, exists: bool) -> None:
        """Code reads an attribute of ``value`` by a computed name."""
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
        if exists:
            self._following.follow(node, self._with(names, name), None)
        elif name not in node.attributes and name not in node.guarded:
            self._absent(node.source, value, name)

    def _absent(self, source: Any, value: Any, name: str) -> None:
        if (id(value), name) not in self._absences:
            self._absences.add((id(value), name))
            self._heap.guards.append(Check(source, NO_ATTRIBUTE, name))

    def _with(self, names: CodeNames, name: str) -> CodeNames:
        key = (id(names), name)
        if key not in self._extended:
            whole = {UNKNOWN} if name == "__dict__" else set()
            extended = names.with_attributes({name})
            extended = replace(extended, probes=set(), whole=whole, reads_order=bool(whole))
            self._extended[key] = (names, extended)
        return self._extended[key][1]

    def _instance(self, kind: Any, classes: Any, result: Any) -> None:
        """Guard results of abstract classes of the user, which can register subclasses later."""
        for base in classes if isinstance(classes, tuple) else (classes,):
            if isinstance(base, abc.ABCMeta) and isinstance(kind, type) and kind_of_class(base) is CodeKind.USER:
                condition = SUBCLASS if issubclass(kind, base) else NO_SUBCLASS
                self._heap.guards.append(Check(ConstantSource(base, base.__name__), condition, kind))


def _has(value: Any, name: Any, result: Any, args: tuple[Any, ...]) -> bool:
    if result is _RAISED:
        return False
    return len(args) < 3 or result is not args[2] or hasattr(value, name)


def _names_abstract(names: CodeNames, namespace: dict[str, Any]) -> bool:
    return any(_is_abstract(namespace.get(chain[0])) for chain in names.chains)


def _is_abstract(value: Any) -> bool:
    return isinstance(value, abc.ABCMeta) and kind_of_class(value) is CodeKind.USER
