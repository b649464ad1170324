"""Calls of builtin functions that a compiled program cannot repeat: they read the time, or use files or the process."""

from __future__ import annotations

import datetime
import os
import sys
import time
from types import FrameType, MethodDescriptorType
from typing import Any, Final

import torch

from thunder_core.guards.code_kinds import CodeKind, is_of_thunder, kind_of
from thunder_core.guards.torch_generators import STATE_METHODS

_MODULES: Final = frozenset(
    {
        "_io",
        "io",
        "_posixsubprocess",
        "_queue",
        "_signal",
        "_socket",
        "_sqlite3",
        "fcntl",
        "gc",
        "mmap",
        "nt",
        "posix",
        "resource",
    }
    | {"select", "sys", "time"}
)
"""Modules of C functions that read or change state outside of Python objects, or of all objects."""
_INSIDE: Final = {
    "posix": frozenset({"fspath", "getpid", "cpu_count", "putenv", "unsetenv"}),
    "nt": frozenset({"fspath", "getpid", "cpu_count", "putenv", "unsetenv"}),
    "gc": frozenset({"collect", "disable", "enable", "freeze", "is_tracked", "isenabled", "unfreeze"}),
    "sys": frozenset(
        {"_getframe", "_getframemodulename", "exc_info", "exception", "getprofile", "getrefcount", "getsizeof"}
        | {"gettrace", "intern", "is_finalizing", "setprofile", "settrace"}
    ),
}
"""Functions of these modules with the same result in each run, or without effects on the program."""
_DATES: Final = frozenset({"now", "utcnow", "today"})
_SUBCLASSES: Final = "__subclasses__"
# Reads of the standard library for logging, warnings and imports are not part of the program.
_UNRELATED: Final = ("importlib", "inspect", "linecache", "logging", "threading", "tokenize", "traceback", "warnings")


_OVERRIDES: Final = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
_REPLACED: Final = {
    "print": print,
    "apply": None,
    "as_subclass": torch.Tensor.as_subclass,
    **{f"_{name}": vars(torch.overrides)[name] for name in _OVERRIDES},
}
"""Functions implemented in C that are replaced by name during recording.

Each class has another bound method `torch.autograd.Function.apply`; up to PyTorch 2.13 it is a Python function.
"""


_GIVES_MEMORY: Final[Any] = vars(torch.utils.dlpack)["to_dlpack"]
"""Exports the memory of a tensor. Modes of PyTorch do not intercept the call."""


def _names() -> frozenset[str]:
    named = {_SUBCLASSES, *_DATES, *STATE_METHODS, *_REPLACED, _GIVES_MEMORY.__name__}
    for name in _MODULES & sys.modules.keys():
        for member in vars(sys.modules[name]).values():
            named |= set(vars(member)) if isinstance(member, type) else {getattr(member, "__name__", "")}
    return frozenset(named)


NAMES: Final = _names()
"""The names of builtin functions with a callback in the frame hook."""


def external_call(function: Any, frame: FrameType) -> str | None:
    """The name of a builtin function that the user's code calls, and that reads or changes external state.

    None for functions of Python objects, and for calls by code other than the user's.
    """
    name = _external_name(function)
    if name is None:
        return None
    caller: FrameType | None = frame
    while caller is not None and kind_of(caller.f_code) is CodeKind.LIBRARY:
        library = str(caller.f_globals.get("__name__", "")).partition(".")[0]
        if library in _UNRELATED:
            return None
        caller = caller.f_back
    if caller is None or kind_of(caller.f_code) is not CodeKind.USER:
        return None
    # the standard library calls these to wait or for timestamps; its other calls are for the program
    return name if caller is frame or not name.startswith(("time.", "sys.", "gc.")) else None


def gives_memory(function: Any) -> bool:
    """Whether a builtin function exports the memory of a tensor."""
    return function is _GIVES_MEMORY


def generator_method(function: Any, frame: FrameType) -> str | None:
    """The name of a method on the state of a generator of PyTorch that the program calls; None for other functions."""
    if not is_generator_method(function):
        return None
    caller: FrameType | None = frame
    while caller is not None and kind_of(caller.f_code) is CodeKind.IGNORED:
        if is_of_thunder(caller.f_code):
            return None
        caller = caller.f_back
    return str(function.__name__)


def is_generator_method(function: Any) -> bool:
    """Whether a builtin function is a bound method on the state of a generator."""
    return function.__name__ in STATE_METHODS and isinstance(getattr(function, "__self__", None), torch.Generator)


def replaced_function(function: Any, frame: FrameType) -> str | None:
    """The name of a function that the user's code calls, though recording has replaced it; None for others."""
    name = str(function.__name__)
    if name not in _REPLACED or kind_of(frame.f_code) is not CodeKind.USER:
        return None
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return "torch.autograd.Function.apply"
    if isinstance(owner, torch.Tensor) or function is _REPLACED["as_subclass"]:
        return "torch.Tensor.as_subclass"
    if function is not _REPLACED[name]:
        return None
    return f"torch.overrides.{name.lstrip('_')}" if name.lstrip("_") in _OVERRIDES else name


def _external_name(function: Any) -> str | None:
    name, owner = str(function.__name__), getattr(function, "__self__", None)
    if function is os.urandom:
        return "os.urandom"
    if owner is time:
        return f"time.{name}"
    if name in _DATES and isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"{owner.__name__}.{name}"
    if name == _SUBCLASSES:
        return name
    if isinstance(function, MethodDescriptorType):
        module = str(function.__objclass__.__module__)
    else:  # a bound method has no module
        module = str(function.__module__ or _class_with(type(owner), name).__module__)
    if module not in _MODULES or name.startswith("__") or name in _INSIDE.get(module, ()):
        return None
    return "open" if name == "open" and module.lstrip("_") == "io" else f"{module.lstrip('_')}.{name}"


def _class_with(kind: type, name: str) -> type:
    """The class, of a class and its bases, that defines an attribute; the class itself if none does."""
    return next((base for base in kind.__mro__ if name in vars(base)), kind)
