"""The attribute ``forward`` of compiled modules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Final

import torch

from thunder.compiled.function import Compiled
from thunder_core.checks.conditions import HOOKS
from thunder_core.checks.global_state import global_module_hooks
from thunder_core.checks.originals import ORIGINAL, original_of
from thunder_core.tracing.this_thread import this_thread

COMPILED: Final = "_thunder_compiled"
"""The slot with the `Compiled` of calls."""

COMPILED_FORWARD: Final = "_thunder_compiled_forward"
"""The slot with the `Compiled` of ``forward`` without hooks of the module; None before the first such call."""


def compiled_of(module: Any) -> Compiled:
    """The program of the calls of a compiled module."""
    compiled: Compiled = getattr(module, COMPILED)
    return compiled


@dataclass(frozen=True)
class Forward:
    """The implementation of the method ``forward`` of a compiled module, with the original's ``forward`` at that time.

    A wrapper around the method can therefore be assigned to ``forward`` of the compiled module: the program then
    consists of the wrapper and the wrapped function.

    Attributes:
        target: a function of the original's class, which takes the module as its first argument, or a callable that
            does not.
        bound: whether ``target`` does not take the module.
    """

    target: Callable[..., Any]
    bound: bool

    def __call__(self, module: Any, /, *args: Any, **kwargs: Any) -> Any:
        original = original_of(module)
        target = self.of(original or module)
        if original is None or this_thread.recorder is not None or original.forward != target:
            return target(*args, **kwargs)
        return self.compiled(module)(*args, **kwargs)

    def of(self, module: Any) -> Callable[..., Any]:
        """``target`` without the parameter for the module."""
        return self.target if self.bound else MethodType(self.target, module)

    def compiled(self, module: Any) -> Compiled:
        """The program of ``forward``: that of calls of the module, if these only call ``forward``."""
        of_call = compiled_of(module)
        original = getattr(module, ORIGINAL)
        if _call_is_forward(original):
            return of_call
        target = self.of(original)
        known: Compiled | None = getattr(module, COMPILED_FORWARD)
        if known is None or known.function != target:
            known = Compiled(target, f"{of_call.name}.forward", of_call.settings)
            known.states, known.warm_up = of_call.states, of_call.warm_up
            object.__setattr__(module, COMPILED_FORWARD, known)
        return known

    def method(self, module: Any) -> MethodType:
        """A method that looks like the original's."""
        function = _function(self)
        functools.update_wrapper(function, self.target)
        if self.bound:
            del function.__wrapped__
            function.__signature__ = _with_module(self.target)
        return MethodType(function, module)


def _function(_forward: Forward) -> Any:
    def forward(_compiled_module: Any, /, *args: Any, **kwargs: Any) -> Any:
        return _forward(_compiled_module, *args, **kwargs)

    return forward


_CODE: Final = _function(None).__code__  # type: ignore[arg-type]


def forward_of(function: Any) -> Forward | None:
    """The `Forward` of the function of such a method; None for other functions, also for wrappers of one."""
    if getattr(function, "__code__", None) is not _CODE:
        return None
    forward: Forward = function.__closure__[0].cell_contents
    return forward


class ForwardAttribute:
    """The attribute ``forward`` of compiled modules."""

    def __init__(self, kind: type[torch.nn.Module]) -> None:
        self.kind = kind

    def __get__(self, module: Any, kind: Any = None) -> Any:
        """The method; from the class, ``forward`` of the originals' class."""
        if module is None:
            return self.kind.forward
        original = getattr(module, ORIGINAL)
        function = inspect.getattr_static(original, "forward")
        bound = "forward" in original.__dict__ or not isinstance(function, FunctionType)
        return Forward(original.forward if bound else function, bound).method(module)

    def __set__(self, module: Any, value: Any) -> None:
        """Set ``forward`` of the original, which is then compiled.

        A method that is bound to the compiled module is bound to the original instead. Setting a previous value of
        ``forward``, of either module, restores it.
        """
        original = getattr(module, ORIGINAL)
        if isinstance(value, MethodType) and value.__self__ is module:
            forward = forward_of(value.__func__)
            value = MethodType(value.__func__, original) if forward is None else forward.of(original)
        if value == MethodType(type(original).forward, original):
            original.__dict__.pop("forward", None)
        else:
            original.forward = value

    def __delete__(self, module: Any) -> None:
        del getattr(module, ORIGINAL).forward


def _call_is_forward(module: torch.nn.Module) -> bool:
    """Whether a call of the module only calls its ``forward``."""
    if type(module).__call__ is not torch.nn.Module.__call__ or any(global_module_hooks()):
        return False
    return not any(module.__dict__.get(name) for name in HOOKS)


def _with_module(target: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a callable with a parameter for the module in front; None if it has no signature."""
    try:
        signature = inspect.signature(target)
    except ValueError:
        return None
    receiver = inspect.Parameter("_compiled_module", inspect.Parameter.POSITIONAL_ONLY)
    return signature.replace(parameters=[receiver, *signature.parameters.values()])
