"""Builtin functions that tell what bytecode does not: they are replaced while a program that names them runs."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import torch

from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.code_names import CodeNames, names_of

OnCall = Callable[[CodeNames, tuple[Any, ...], Any], None]
RAISED = object()
"""The result of a call that raised an exception."""


class WatchedBuiltins:
    """Calls back with arguments and result of each call that the user's code makes in the observed thread.

    Attributes:
        active: False while the observation is paused.
        answers: by name of the builtin, what the user's code gets instead; `NotImplemented` for what the builtin gives.

    Args:
        callbacks: by name of the builtin; they also get the names in the code that calls it.
        on_hash: is called with tensors whose hash is computed: sets and dictionaries find them by identity.
    """

    def __init__(self, callbacks: dict[str, OnCall], on_hash: Callable[[torch.Tensor], None]) -> None:
        self._callbacks = callbacks
        self._on_hash = on_hash
        self.active = True
        self.answers: dict[str, Callable[..., Any]] = {}
        self._thread = threading.get_ident()
        self._replaced: dict[tuple[Any, str], tuple[Any, Any]] = {}
        self._originals: dict[Any, Any] = {}

    def watch(self, names: Iterable[str]) -> None:
        """Replace these builtins, as far as there are callbacks for them, until `restore`."""
        for name in names:
            if (name in self._callbacks or name in self.answers) and (builtins, name) not in self._replaced:
                original = getattr(builtins, name)
                answered = name in self.answers
                wrapper = self._answering(original) if answered else self._wrapper(original, self._callbacks[name])
                self._replace(builtins, name, original, wrapper)

    def watch_hashes(self) -> None:
        """Also notice that tensors are hashed, until `restore`."""
        if (torch.Tensor, "__hash__") not in self._replaced:
            original = torch.Tensor.__hash__
            on_hash, identity = self._on_hash, builtins.id

            def __hash__(tensor: torch.Tensor) -> int:
                if self._observes():
                    on_hash(tensor)
                return identity(tensor)

            self._replace(torch.Tensor, "__hash__", original, __hash__)

    def restore(self) -> None:
        """Give every place its builtin back; what the program put there itself stays."""
        for (owner, name), (original, wrapper) in self._replaced.items():
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)
        self._replaced.clear()

    def original(self, value: Any) -> Any:
        """The builtin that one of the replacements stands for, also after `restore`; any other object itself."""
        return self._originals.get(value, value) if type(value) is FunctionType else value

    def _observes(self) -> bool:
        return self.active and threading.get_ident() == self._thread

    def _replace(self, owner: Any, name: str, original: Any, wrapper: Any) -> None:
        self._replaced[owner, name] = (original, wrapper)
        setattr(owner, name, wrapper)

    def _answering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        answer = self.answers[original.__name__]

        def builtin(*args: Any) -> Any:
            if not self._observes() or kind_of(sys._getframe(1).f_code) is not CodeKind.USER:
                return original(*args)
            given = answer(*args)
            return original(*args) if given is NotImplemented else given

        return self._named(builtin, original)

    def _wrapper(self, original: Callable[..., Any], callback: OnCall) -> Callable[..., Any]:
        def builtin(*args: Any) -> Any:
            code = sys._getframe(1).f_code
            if not self._observes() or kind_of(code) is not CodeKind.USER:
                return original(*args)
            result: Any = RAISED
            try:
                result = original(*args)
            finally:
                callback(names_of(code), args, result)
            return result

        return self._named(builtin, original)

    def _named(self, builtin: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
        builtin.__name__ = builtin.__qualname__ = original.__name__
        self._originals[builtin] = original
        return builtin
