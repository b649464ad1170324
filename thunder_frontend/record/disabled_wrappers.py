"""The wrappers that `torch.compiler.disable` creates: their calls, and calls of a function in another's place.

They are closures of PyTorch, which no mode intercepts. Each calls `torch.compiler.is_exporting` before its function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final

import torch

from thunder_core.errors import RunEagerly
from thunder_core.ir.location import at
from thunder_core.tracing.frames import calls_program, user_location
from thunder_frontend.record.interception import calling_instead, copy_of
from thunder_frontend.record.recorder import Recorder


class _ThisThread(threading.local):
    restore: Callable[[], None] | None = None


_this_thread: Final = _ThisThread()


def disabled_by_user(frame: FrameType) -> Any:
    """The function that a frame of a wrapper is about to call; None for other frames, and for PyTorch's own functions.

    PyTorch disables functions of its own, such as `torch.utils.checkpoint.checkpoint`; these are part of the program.
    """
    codes = wrapper_codes()
    if frame.f_code not in codes:
        return None
    function = frame.f_locals["fn"]
    by_user = frame.f_code is codes[1] or frame.f_locals["self"].wrapping
    return function if by_user and not _is_of_pytorch(function) else None


def _is_of_pytorch(function: Any) -> bool:
    """Whether a function is PyTorch's own; the call of a module that the user disables is not."""
    is_call = str(getattr(function, "__name__", "")).endswith("_call_impl")
    if is_call and isinstance(getattr(function, "__self__", None), torch.nn.Module):
        return False
    return str(getattr(function, "__module__", "")).startswith("torch.")


@cache
def wrapper_codes() -> tuple[CodeType, CodeType]:
    """The code of the wrappers, with and without ``recursive``."""
    from thunder_core.pytorch_internals import DisableContext, get_nonrecursive_disable_wrapper  # imports Dynamo

    def nested(function: FunctionType, name: str) -> CodeType:
        codes = [each for each in function.__code__.co_consts if isinstance(each, CodeType)]
        return next(code for code in codes if code.co_name == name)

    recursive = nested(DisableContext.__call__, "_fn")
    return recursive, nested(get_nonrecursive_disable_wrapper, "nonrecursive_disable_wrapper")


def call_instead(function: Any, call: Callable[[], Any]) -> None:
    """Have the next call of a function by this thread call ``call`` instead. Functions in C are called as they are."""
    code = _python_function(function)
    if code is None:
        return
    thread, original, pending = threading.get_ident(), copy_of(code), [call]

    @calls_program
    def replacement(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return original(*args, **kwargs)
        restore()
        return pending.pop()()  # the observer holds this code until the end of the recording

    restore()  # that of a call that an exception prevented
    _this_thread.restore = calling_instead(code, replacement)


def restore() -> None:
    """Undo `call_instead`, if the call was prevented."""
    undo, _this_thread.restore = _this_thread.restore, None
    if undo is not None:
        undo()


def _python_function(function: Any) -> FunctionType | None:
    """The Python function that a call of an object calls first; None if there is none."""
    if isinstance(function, FunctionType):
        return function
    if isinstance(function, MethodType):
        return _python_function(function.__func__)
    if isinstance(function, partial):
        return _python_function(function.func)
    call = getattr(type(function), "__call__", None)  # noqa: B004  the method itself
    return call if isinstance(call, FunctionType) and not isinstance(function, type) else None


def disable(recorder: Recorder, original: Callable[..., Any], context: Any, function: Any, /) -> Any:
    """The interception of `torch.compiler.disable` itself: each run may mark another function.

    Raises:
        RunEagerly: the program marks a function.
    """
    if context.wrapping and not _is_of_pytorch(function):
        raise RunEagerly(f"the program calls torch.compiler.disable{at(user_location())}")
    return original(context, function)


def disable_not_recursive(recorder: Recorder, original: Callable[..., Any], function: Any, /) -> Any:
    """As `disable`, for a function whose callees are not disabled."""
    if not _is_of_pytorch(function):
        raise RunEagerly(f"the program calls torch.compiler.disable{at(user_location())}")
    return original(function)
