"""Functions of the program that backward calls: hooks, and ``backward`` of its autograd.Functions.

They do not run while the program is recorded, only with each run of its ops. Their effects on Python objects are those
that their code may have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from thunder_core.checks.stored_attributes import content_of
from thunder_core.guards.bytecode import names_of
from thunder_core.tracing.frames import CodeKind, kind_of


@dataclass(frozen=True)
class BackwardCode:
    """What is known of such a function, without a reference to it: it may hold tensors of the program.

    Attributes:
        name: its name, for messages.
        may_change_objects: whether it, or a function that it names, may change objects other than its own.
    """

    name: str
    may_change_objects: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> BackwardCode:
        return cls(getattr(function, "__qualname__", type(function).__qualname__), _may_change_objects(function))


def _may_change_objects(function: Callable[..., Any]) -> bool:
    """True if it is not known."""
    pending, seen = [function], set()
    while pending:
        called = inspect.unwrap(pending.pop())
        called = getattr(called, "__func__", called)
        if not isinstance(called, FunctionType):
            return True
        if called.__code__ in seen or kind_of(called.__code__) is not CodeKind.USER:
            continue
        seen.add(called.__code__)
        names = names_of(called.__code__)
        if names.stores:
            return True
        cells = map(content_of, called.__closure__ or ())
        closure = dict(zip(called.__code__.co_freevars, cells, strict=True))
        for first, *attributes in [*names.chains, *[(name,) for name in names.free]]:
            value = closure.get(first, called.__globals__.get(first))
            for attribute in attributes:
                value = inspect.getattr_static(value, attribute, None)
            value = getattr(value, "__func__", value)
            if isinstance(value, FunctionType):
                pending.append(value)
    return False
