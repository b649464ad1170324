"""Handles of hooks on tensors: those that the program gets, and those that it removes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.replaced_code import copy_of
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import OpaqueProxy
from thunder_core.ir.symbol import Symbol, Tag, as_recorded
from thunder_core.symbols.functions import remove_hook
from thunder_core.tracing.user_frames import user_location

_REMOVE_HOOK = Symbol("thunder_core.symbols.functions.remove_hook", remove_hook, tags=frozenset({Tag.AS_RECORDED}))

_remove = copy_of(RemovableHandle.remove)


class TracedHandle(RemovableHandle):
    """What ``register_hook`` returns while a program is recorded.

    The handle of each run becomes a value of the trace when the program removes it, returns it or stores it.
    """

    def __init__(self, recorder: Recorder, line: BoundSymbol) -> None:  # it has no hooks: no call of the base
        self._recorder = recorder
        self._line = line
        self._proxy: OpaqueProxy | None = None

    def remove(self) -> None:
        """Record that the hook is removed here."""
        _record_removal(self._recorder, self.proxy())

    def proxy(self) -> OpaqueProxy:
        """The handle as a value of the trace."""
        if self._proxy is None:
            self._proxy = OpaqueProxy(self._recorder.trace.names.intermediate(), RemovableHandle.__qualname__)
            self._replace(replace(self._line, symbol=as_recorded(self._line.symbol), output=self._proxy))
        return self._proxy

    def _replace(self, line: BoundSymbol) -> None:
        for lines in self._recorder.trace.outwards():
            for index, known in enumerate(lines):
                if known is self._line:
                    lines[index] = line
                    return
        raise UnsupportedError(
            "the handle of a hook that was set inside of a checkpoint region is used outside of it",
            location=user_location(),
            advice=("set the hook outside of the region",),
        )


def register_hook(
    register: Callable[..., Any],
) -> Callable[[Recorder, torch.Tensor, Callable[..., Any]], TracedHandle]:
    """How to record a call of ``register``, a method of tensors that takes a hook."""

    def record(recorder: Recorder, tensor: torch.Tensor, hook: Callable[..., Any]) -> TracedHandle:
        of_fake: RemovableHandle = recorder.call(register, (tensor, hook), {})
        _remove(of_fake)  # a backward on fakes calls nobody
        return TracedHandle(recorder, recorder.trace.lines[-1])

    return record


def remove(recorder: Recorder, original: Callable[[RemovableHandle], None], handle: RemovableHandle) -> None:
    """The interception of ``handle.remove()``, by which a hook that existed before the program is removed.

    A line, if it is one on a tensor. Hooks of modules are attributes, which are followed as such.
    """
    if _is_in_attribute(handle.hooks_dict_ref()):
        original(handle)
        return
    proxy = recorder.inputs.object(handle)
    if recorder.inputs.is_constant_object(handle):
        raise UnsupportedError(
            "the program removes a hook, set before it, through a handle that cannot be found again at the next call",
            location=user_location(),
            advice=("pass the handle as an argument", "remove the hook outside of the compiled function"),
        )
    _record_removal(recorder, proxy)


def _record_removal(recorder: Recorder, proxy: Any) -> None:
    recorder.trace.write(_REMOVE_HOOK, (proxy,), {}, effects=Effects(external=True))


def _is_in_attribute(hooks: Any) -> bool:
    """Whether a dictionary of hooks is an attribute of a Python object; those of tensors are held by C++."""
    if hooks is None:
        return False
    return any(isinstance(holder, dict) and _holds(holder, hooks) for holder in gc.get_referrers(hooks))


def _holds(holder: dict[Any, Any], hooks: Any) -> bool:
    return any(type(name) is str and name.endswith("hooks") and item is hooks for name, item in holder.items())
