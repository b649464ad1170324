"""Functions of the program that backward calls: hooks, and ``backward`` of its autograd.Functions.

They do not run while the program is recorded, only with each run of its ops: what they read is what the program found.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from thunder_core.checks.stored_attributes import content_of
from thunder_core.tracing.frames import CodeKind, kind_of
from thunder_frontend.observe.bytecode import names_of


@dataclass(frozen=True)
class BackwardCode:
    """What is known of such a function, without a reference to it: it may hold tensors of the program.

    Attributes:
        name: its name, for messages.
        may_change_objects: whether it, or a function that it names, may change objects that the program reads. Hooks
            often do, to note gradients: later code of the program must not depend on these changes.
    """

    name: str
    may_change_objects: bool

    @classmethod
    def of_hook(cls, hook: Callable[..., Any]) -> BackwardCode:
        return cls(_name(hook), may_change_objects=False)

    @classmethod
    def of_function(cls, function: type[torch.autograd.Function]) -> BackwardCode:
        has_backward = function.vjp is torch.autograd.Function.vjp
        derivative = function.backward if has_backward else function.vjp
        return cls(_name(derivative), _may_change_objects(derivative))

    @classmethod
    def of_derivative(cls, function: Callable[..., Any]) -> BackwardCode:
        """Of a formula that `register_autograd` has registered for an operator."""
        return cls(_name(function), _may_change_objects(function))


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


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
