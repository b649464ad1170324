"""Functions of the program that backward calls: hooks, and ``backward`` of its autograd.Functions.

They do not run while the program is recorded, only with each run of its ops. Their effects on Python objects are those
that their code may have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from thunder_core.guards.bytecode import names_of
from thunder_core.guards.code_kinds import CodeKind, kind_of


def may_change_objects(function: Callable[..., Any]) -> bool:
    """Whether a function, or one that it names, may change objects other than its own; True if that is not known."""
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
        closure = inspect.getclosurevars(called).nonlocals
        for first, *attributes in [*names.chains, *[(name,) for name in names.free]]:
            value = closure.get(first, called.__globals__.get(first))
            for attribute in attributes:
                value = inspect.getattr_static(value, attribute, None)
            value = getattr(value, "__func__", value)
            if isinstance(value, FunctionType):
                pending.append(value)
    return False
