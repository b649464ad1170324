"""A hook on the Python frames that the calling thread enters and leaves."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Container
from functools import partial
from types import BuiltinFunctionType, CodeType, FrameType, MethodDescriptorType
from typing import Any, Protocol

import torch

from thunder_core.errors import AcquisitionError
from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.outside_reads import NAMES, is_generator_method

OnCall = Callable[[FrameType], None]
Hook = Callable[[FrameType, str, Any], None]
OnBuiltin = Callable[[FrameType, Any], None]
OnReturn = Callable[[FrameType, Any], None]
_BUILTINS = (BuiltinFunctionType, MethodDescriptorType)


class FrameHook(Protocol):
    """Calls back on entry of a frame, when it returns or yields a value, and when it calls a builtin of `NAMES`."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class ProfileHook:
    """Through ``sys.setprofile``. A profiler that is already installed keeps being called, pauses excepted."""

    def __init__(self, on_call: OnCall, on_return: OnReturn, on_builtin: OnBuiltin, ignored: Container[int]) -> None:
        self._previous: Any = None

        def hook(frame: FrameType, event: str, value: Any, /) -> None:
            if event == "call":
                if id(frame.f_code) not in ignored:
                    on_call(frame)
            elif event == "return":
                if id(frame.f_code) not in ignored:
                    on_return(frame, value)
            elif event == "c_call" and value.__name__ in NAMES:
                on_builtin(frame, value)

        self._own_hook: Hook = hook
        self.pause = self.resume = _do_nothing

    def start(self) -> None:
        previous: Any = sys.getprofile()
        own_hook = self._own_hook

        def chained(frame: FrameType, event: str, value: Any, /) -> None:
            previous(frame, event, value)
            own_hook(frame, event, value)

        self._previous = previous
        hook = chained if callable(previous) else own_hook
        # no methods, whose frames the hook would see
        self.pause, self.resume = partial(sys.setprofile, None), partial(sys.setprofile, hook)
        sys.setprofile(hook)

    def stop(self) -> None:
        self.pause = self.resume = _do_nothing  # the program's last calls may come after the end of observation
        previous = self._previous
        if callable(previous) or previous is None:
            sys.setprofile(previous)
        else:  # cProfile installs itself from C and answers getprofile() with the profiler object
            sys.setprofile(None)
            previous.enable()


def _do_nothing() -> None:
    """A pause of a hook that is not started."""


class MonitoringHook:
    """Through ``sys.monitoring`` (Python 3.12): code that is never observed is switched off at its first event."""

    def __init__(self, on_call: OnCall, on_return: OnReturn, on_builtin: OnBuiltin) -> None:
        self._on_call, self._on_return, self._on_builtin = on_call, on_return, on_builtin
        self._active = False
        self._thread = 0
        self._tool = -1
        self._disable: Any = sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def start(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        # Ids 0-2 and 5 have names of their own (debugger, coverage, profiler, optimizer).
        free = [tool for tool in (3, 4, 5, 2) if monitoring.get_tool(tool) is None]
        if not free:
            raise AcquisitionError(
                "All sys.monitoring tool ids are taken.", advice=("Compile with other monitoring tools switched off.",)
            )
        self._tool = free[0]
        monitoring.use_tool_id(self._tool, "thunder")
        events = monitoring.events
        callbacks: dict[int, Callable[..., Any]] = {
            events.PY_START: self._entered,
            events.PY_RETURN: self._left,
            events.PY_YIELD: self._left,
            events.CALL: self._calls,
        }
        for event, callback in callbacks.items():
            monitoring.register_callback(self._tool, event, callback)
        self._thread = threading.get_ident()
        self._active = True
        # Switched-off places stay so across tools; this one must see them again.
        monitoring.restart_events()
        monitoring.set_events(self._tool, events.PY_START | events.PY_RETURN | events.PY_YIELD | events.CALL)

    def stop(self) -> None:
        self._active = False
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        monitoring.set_events(self._tool, 0)
        events = monitoring.events
        for event in (events.PY_START, events.PY_RETURN, events.PY_YIELD, events.CALL):
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)

    def pause(self) -> None:
        self._active = False

    def resume(self) -> None:
        self._active = True

    def _entered(self, code: CodeType, offset: int) -> Any:
        if kind_of(code) is CodeKind.IGNORED:
            return self._disable
        if self._active and threading.get_ident() == self._thread:
            self._on_call(sys._getframe(1))
        return None

    def _left(self, code: CodeType, offset: int, value: Any) -> Any:
        if kind_of(code) is CodeKind.IGNORED:
            return self._disable
        if self._active and threading.get_ident() == self._thread:
            self._on_return(sys._getframe(1), value)
        return None

    def _calls(self, code: CodeType, offset: int, function: Any, argument: Any) -> Any:
        named = type(function) in _BUILTINS and function.__name__ in NAMES
        if named and isinstance(argument, torch.Generator) and type(function) is MethodDescriptorType:
            function = function.__get__(argument)
        if kind_of(code) is CodeKind.IGNORED and not (named and is_generator_method(function)):
            return self._disable
        if named and self._active and threading.get_ident() == self._thread:
            self._on_builtin(sys._getframe(1), function)
        return None


def frame_hook(on_call: OnCall, on_return: OnReturn, on_builtin: OnBuiltin, ignored: Container[int]) -> FrameHook:
    """The hook that this Python offers.

    Args:
        ignored: the ids of code objects, grown as they are met, whose frames need not be called back for.
    """
    if sys.version_info >= (3, 12):
        return MonitoringHook(on_call, on_return, on_builtin)
    return ProfileHook(on_call, on_return, on_builtin, ignored)
