"""Calls of builtin functions that a compiled program cannot repeat: they read the time, or use files or the process.

Calls that start, wake or wait for another thread cannot even be recorded: that thread would get tensors without values.
"""

from __future__ import annotations

import _thread
import datetime
import functools
import gc
import os
import sys
import threading
import time
from types import FrameType, MethodDescriptorType, ModuleType
from typing import Any, Final

import torch

from thunder_core.checks.arrays import is_array
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import PACKAGES, CodeKind, is_calling, is_in_installed, is_of_thunder, kind_of
from thunder_frontend.observe.getters import FORMATS
from thunder_frontend.observe.torch_generators import STATE_METHODS

_MODULES: Final = frozenset(
    {
        "_io",
        "io",
        "_posixsubprocess",
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
_OF_OS: Final = frozenset({"fspath", "getpid", "cpu_count", "putenv", "unsetenv"})
_OF_PATHS: Final = frozenset({"_path_normpath", "_path_splitroot", "_path_splitroot_ex"})
"""Functions of `os.path` that take paths apart as texts; in C since Python 3.11 to 3.13."""
_INSIDE: Final = {
    "posix": _OF_OS | _OF_PATHS,
    "nt": _OF_OS | _OF_PATHS,
    "gc": frozenset({"collect", "disable", "enable", "freeze", "is_tracked", "isenabled", "unfreeze"}),
    "sys": frozenset(
        {"_getframe", "_getframemodulename", "exc_info", "exception", "getprofile", "getrefcount", "getsizeof"}
        | {"gettrace", "intern", "is_finalizing", "setprofile", "settrace"}
    ),
}
"""Functions of these modules with the same result in each run, or without effects on the program."""
_STARTS_THREAD: Final = frozenset({"start_new_thread", "start_new", "start_joinable_thread"})
_OF_LOCKS: Final = frozenset({"acquire", "acquire_lock", "release", "release_lock"})
_OF_THREADS: Final = frozenset({"get_ident", "get_native_id", "locked"})
"""Functions whose results depend on the calling thread, or on what others do."""
_OF_COLLECTOR: Final = frozenset({"get_count", "get_objects", "get_stats", "get_threshold"})
_PACKAGES: Final = sys.stdlib_module_names | {"numpy", "torch", "pybind11_builtins"}
"""Packages whose functions in C are known."""
_OF_CACHES: Final = frozenset({"cache_clear", "cache_info"})
_RESIZE: Final = "resize"
SET_STATE: Final = "__setstate__"
_OF_PICKLES: Final = frozenset({"dump", "dumps"})
_OF_QUEUES: Final = frozenset({"put", "put_nowait", "get", "get_nowait"})
_OF_HANDLES: Final = frozenset({"join"} if sys.version_info >= (3, 13) else ())
CONCURRENT: Final = frozenset({"asyncio", "concurrent", "multiprocessing"})
"""Packages whose functions communicate with other threads, processes or an event loop."""
_NOT_CONCURRENT: Final = frozenset(
    {"__init__", "__new__", "iscoroutine", "iscoroutinefunction", "isfuture"}
    | {"cpu_count", "current_process", "get_start_method", "name", "parent_process"}
)
"""Functions of these packages that do not. If creating an object starts threads, `ThreadCalls` knows."""
_DATES: Final = frozenset({"now", "utcnow", "today"})
_SUBCLASSES: Final = "__subclasses__"
# Reads of the standard library for logging, warnings and imports are not part of the program.
_UNRELATED: Final = ("importlib", "inspect", "linecache", "logging", "threading", "tokenize", "traceback", "warnings")

_ONCE: Final = frozenset(
    {("multiprocessing.context", "_default_context"), ("multiprocessing.resource_tracker", "_send")}
)
"""Functions that prepare a process for `multiprocessing` once, since Python 3.14, by module: not part of a program."""


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
    named = {_SUBCLASSES, _RESIZE, SET_STATE, *_DATES, *STATE_METHODS, *_REPLACED, _GIVES_MEMORY.__name__}
    named |= FORMATS | _OF_CACHES | _OF_PICKLES | _OF_THREADS | _STARTS_THREAD | _OF_LOCKS | _OF_QUEUES | _OF_HANDLES
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
        module = str(caller.f_globals.get("__name__", ""))
        library = module.partition(".")[0]
        if (module, caller.f_code.co_name) in _ONCE:
            return None
        # others than `threading` detect recursion by thread
        if library != "threading" if name.startswith("threading.") else library in _UNRELATED:
            return None
        caller = caller.f_back
    if caller is None or kind_of(caller.f_code) is not CodeKind.USER:
        return None
    # the standard library calls these to wait or for timestamps; its other calls are for the program
    return name if caller is frame or not name.startswith(("time.", "sys.", "gc.")) else None


class ThreadCalls:
    """The calls of a program that start, wake or wait for another thread.

    The others of the same functions are harmless: of a lock that only the program holds, or of a thread that has ended.
    """

    def __init__(self) -> None:
        self._acquired: list[Any] = []

    def effect(self, function: Any, frame: FrameType) -> str | None:
        """What a call of a builtin function does to another thread; None for nothing.

        Called before the function. A lock that it acquires is then the program's.
        """
        name, owner = str(function.__name__), getattr(function, "__self__", None)
        if owner is _thread:
            return f"starts a thread: {name}" if name in _STARTS_THREAD and _is_for_user(frame) else None
        kind = type(owner)
        if module_of(kind) == "_queue":
            return f"uses a queue between threads: {name}" if name in _OF_QUEUES and _is_for_user(frame) else None
        if module_of(kind) != "_thread" or name not in _OF_LOCKS | _OF_HANDLES:
            return None
        assert owner is not None
        if name in _OF_HANDLES:
            return None if owner.is_done() or not _is_for_user(frame) else f"waits for a thread: {name}"
        acquires = name.startswith("acquire")
        if not acquires:
            index = next((index for index, lock in enumerate(self._acquired) if lock is owner), None)
            if index is not None:
                del self._acquired[index]
                return None
        elif owner.acquire(blocking=False):
            owner.release()
            self._acquired.append(owner)
            return None
        return f"{'waits for' if acquires else 'wakes'} another thread: {name}" if _is_for_user(frame) else None


_known: dict[tuple[Any, str], bool] = {}  # by module or class, and name


def is_foreign(function: Any) -> bool:
    """Whether a builtin function belongs to a package other than Python, PyTorch and NumPy.

    It may read anything from its arguments, which no guard knows.
    """
    owner: Any = function.__objclass__ if type(function) is MethodDescriptorType else function.__self__
    holder: Any = owner if isinstance(owner, type | ModuleType) else type(owner)
    key = (holder, function.__name__)
    known = _known.get(key)
    if known is None:
        if isinstance(owner, ModuleType):
            module = owner.__name__
        elif type(owner).__name__ == "PyCapsule":  # of pybind11
            module = str(function.__module__)
        else:
            module = str(module_of(_class_with(holder, function.__name__)))
        package = module.partition(".")[0]
        known = _known[key] = package not in _PACKAGES and package not in PACKAGES and is_in_installed(module)
    return known


def foreign_function(function: Any, frame: FrameType) -> str | None:
    """The name of a function that `is_foreign` and that user code calls, but not for Thunder; None for others."""
    if not is_foreign(function) or kind_of(frame.f_code) is not CodeKind.USER:
        return None
    caller: FrameType | None = frame
    while caller is not None and not is_of_thunder(caller.f_code):
        caller = caller.f_back
    if caller is not None and not is_calling(caller.f_code):
        return None
    owner = getattr(function, "__self__", None)
    return f"{(owner if isinstance(owner, ModuleType) else type(owner)).__name__}.{function.__name__}"


def used_state(function: Any, frame: FrameType) -> str | None:
    """The name of a function that reads state which a program cannot repeat or guard; None for others.

    They read or clear the cache of a function of ``functools.lru_cache``, which eager PyTorch fills, read that of the
    garbage collector, whose thresholds Thunder changes, count the references to an array, of which recording adds, or
    pickle objects.
    """
    name, owner = str(function.__name__), getattr(function, "__self__", None)
    if owner is gc and name in _OF_COLLECTOR:
        shown = f"gc.{name}"
    elif isinstance(owner, functools._lru_cache_wrapper) and name in _OF_CACHES:
        shown = f"{getattr(owner, '__qualname__', 'a function')}.{name}"
    elif name == _RESIZE and (is_array(owner) or _is_method_of_arrays(function)):
        shown = f"numpy.ndarray.{name}"
    elif name in _OF_PICKLES and "_pickle" in (getattr(owner, "__name__", ""), module_of(type(owner))):
        shown = f"pickle.{name}"
    else:
        return None
    return shown if _is_for_user(frame) else None


def _is_method_of_arrays(function: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and getattr(function, "__objclass__", None) is numpy.ndarray


def concurrent_function(frame: FrameType, *, is_users: bool) -> str | None:
    """The name of a function of the standard library that communicates with other threads or processes.

    Args:
        frame: its frame, which was just entered.
        is_users: whether user code has called it. What it calls itself starts threads by `threading.Thread.start`.
    """
    if frame.f_code is threading.Thread.start.__code__ and _is_for_user(frame):  # before it registers the thread
        return "threading.Thread.start"
    if not is_users:
        return None
    module, name = str(frame.f_globals.get("__name__", "")), frame.f_code.co_name
    if module.partition(".")[0] not in CONCURRENT or name in _NOT_CONCURRENT:
        return None
    return f"{module}.{frame.f_code.co_qualname}"


def _is_for_user(frame: FrameType) -> bool:
    """Whether user code runs in a frame, perhaps by functions of the standard library that it calls."""
    caller: FrameType | None = frame
    while caller is not None and kind_of(caller.f_code) is CodeKind.LIBRARY:
        library = str(caller.f_globals.get("__name__", "")).partition(".")[0]
        if library in _UNRELATED and library != "threading":
            return False
        caller = caller.f_back
    return caller is not None and kind_of(caller.f_code) is CodeKind.USER


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
    if name in _OF_THREADS and (owner is _thread or module_of(type(owner)) == "_thread"):
        return f"threading.{name}"
    if owner is time:
        return f"time.{name}"
    if name in _DATES and isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"{owner.__name__}.{name}"
    if name == _SUBCLASSES:
        return name
    if isinstance(function, MethodDescriptorType):
        module = str(function.__objclass__.__module__)
    else:  # a bound method has no module
        module = str(function.__module__ or module_of(_class_with(type(owner), name)))
    if module not in _MODULES or name.startswith("__") or name in _INSIDE.get(module, ()):
        return None
    return "open" if name == "open" and module.lstrip("_") == "io" else f"{module.lstrip('_')}.{name}"


def _class_with(kind: type, name: str) -> type:
    """The class, of a class and its bases, that defines a method in C; the class itself if none does.

    A method in Python of a class before it may call it by ``super``.
    """
    for base in kind.__mro__:
        method = vars(base).get(name)
        if method is not None and not hasattr(getattr(method, "__func__", method), "__code__"):
            return base
    return kind
