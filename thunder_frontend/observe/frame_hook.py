"""Hooks on the Python frames that the calling thread enters and leaves."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Container
from functools import partial
from types import BuiltinFunctionType, CodeType, FrameType, MethodDescriptorType
from typing import Any, Protocol

from thunder_core.errors import AcquisitionError
from thunder_core.tracing.frames import CodeKind, kind_of
from thunder_frontend.observe.external_calls import NAMES, is_foreign, is_generator_method

OnCall = Callable[[FrameType], None]
Hook = Callable[[FrameType, str, Any], None]
OnBuiltin = Callable[[FrameType, Any], None]
OnReturn = Callable[[FrameType, Any], None]
OnRaise = Callable[[FrameType, BaseException], None]
_BUILTINS = frozenset({BuiltinFunctionType, MethodDescriptorType})


class FrameHook(Protocol):
    """Calls back on entry of a frame, when it returns, yields or raises, and when it calls a builtin of `NAMES`.

    A frame that raises counts as one that returns None. The exception itself is known since Python 3.12.
    """

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class _ProfileHook:
    """The hook for Python 3.11, by ``sys.setprofile``. It also calls an installed profiler, except in pauses."""

    def __init__(self, on_call: OnCall, on_return: OnReturn, on_builtin: OnBuiltin, ignored: Container[int]) -> None:
        self._previous: Any = None
        self._thread = 0

        def hook(frame: FrameType, event: str, value: Any, /) -> None:
            if event == "call":
                if id(frame.f_code) not in ignored:
                    on_call(frame)
            elif event == "return":
                if id(frame.f_code) not in ignored:
                    on_return(frame, value)
            elif (
                event == "c_call"
                and (value.__name__ in NAMES or is_foreign(value))
                and (id(frame.f_code) not in ignored or is_generator_method(value))  # PyTorch may call the latter
            ):
                on_builtin(frame, value)

        self._own_hook: Hook = hook
        self.pause = self.resume = _do_nothing

    def start(self) -> None:
        self._thread = threading.get_ident()
        previous: Any = sys.getprofile()
        own_hook = self._own_hook

        def chained(frame: FrameType, event: str, value: Any, /) -> None:
            previous(frame, event, value)
            own_hook(frame, event, value)

        self._previous = previous
        hook = chained if callable(previous) else own_hook
        # not methods, whose frames would call the hook
        self.pause, self.resume = partial(sys.setprofile, None), partial(sys.setprofile, hook)
        sys.setprofile(hook)

    def stop(self) -> None:
        self.pause = self.resume = _do_nothing  # a pause may begin after the end of the observation
        if threading.get_ident() != self._thread:  # in a forked process, which lacks it
            return
        previous = self._previous
        if callable(previous) or previous is None:
            sys.setprofile(previous)
        else:  # cProfile is installed from C; sys.getprofile() returns the profiler object
            sys.setprofile(None)
            previous.enable()


def _do_nothing() -> None:
    """A pause of a hook that is not started."""


class _MonitoringHook:
    """The hook since Python 3.12, by ``sys.monitoring``. It disables the events of ignored code at the first one."""

    def __init__(self, on_call: OnCall, on_return: OnReturn, on_raise: OnRaise, on_builtin: OnBuiltin) -> None:
        self._on_call, self._on_return, self._on_raise, self._on_builtin = on_call, on_return, on_raise, on_builtin
        self._active = False
        self._thread = 0
        self._tool = -1
        self._disable: Any = sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def start(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        # Ids 0-2 and 5 are reserved for debugger, coverage, profiler and optimizer.
        free = [tool for tool in (3, 4, 5, 2) if monitoring.get_tool(tool) is None]
        if not free:
            raise AcquisitionError(
                "All sys.monitoring tool ids are taken.", advice=("Compile with other monitoring tools switched off.",)
            )
        self._tool = free[0]
        monitoring.use_tool_id(self._tool, "thunder")
        callbacks = self._callbacks()
        for event, callback in callbacks.items():
            monitoring.register_callback(self._tool, event, callback)
        self._thread = threading.get_ident()
        self._active = True
        # Events stay disabled across tools.
        monitoring.restart_events()
        monitoring.set_events(self._tool, sum(callbacks))

    def stop(self) -> None:
        self._active = False
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        if self._tool < 0 or monitoring.get_tool(self._tool) is None:  # stopped already
            return
        monitoring.set_events(self._tool, 0)
        for event in self._callbacks():
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)
        self._tool = -1

    def _callbacks(self) -> dict[int, Callable[..., Any]]:
        events: Any = sys.monitoring.events  # type: ignore[attr-defined,unused-ignore]
        return {
            events.PY_START: self._entered,
            events.PY_RETURN: self._left,
            events.PY_YIELD: self._left,
            events.PY_UNWIND: self._raised,
            events.CALL: self._calls,
        }

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

    def _raised(self, code: CodeType, offset: int, error: BaseException) -> None:
        """This event cannot be disabled for a code object."""
        ignored = kind_of(code) is CodeKind.IGNORED
        if not ignored and self._active and threading.get_ident() == self._thread:
            frame = sys._getframe(1)
            self._on_return(frame, None)
            self._on_raise(frame, error)

    def _calls(self, code: CodeType, offset: int, function: Any, argument: Any) -> Any:
        named = type(function) in _BUILTINS and (function.__name__ in NAMES or is_foreign(function))
        if named and type(function) is MethodDescriptorType and issubclass(type(argument), function.__objclass__):
            # as `sys.setprofile` passes it; CPython crashes without the class for methods that need it (METH_METHOD)
            function = function.__get__(argument, type(argument))
        if kind_of(code) is CodeKind.IGNORED and not (named and is_generator_method(function)):
            return self._disable
        if named and self._active and threading.get_ident() == self._thread:
            self._on_builtin(sys._getframe(1), function)
        return None


def frame_hook(
    on_call: OnCall, on_return: OnReturn, on_raise: OnRaise, on_builtin: OnBuiltin, ignored: Container[int]
) -> FrameHook:
    """The hook for this version of Python.

    Args:
        ignored: the ids of code objects without callbacks; the observer adds to them during the run.
    """
    if sys.version_info >= (3, 12):
        return _MonitoringHook(on_call, on_return, on_raise, on_builtin)
    return _ProfileHook(on_call, on_return, on_builtin, ignored)
