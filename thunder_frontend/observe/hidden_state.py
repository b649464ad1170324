"""State without paths: of random generators outside of PyTorch, iterators, environment variables and loggers.

Environment variables and levels of loggers are guarded. A program that changes another state (random numbers, items of
iterators) or reads the time is compiled in each call.
"""

from __future__ import annotations

import decimal
import functools
import gc
import importlib
import io
import itertools
import logging
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    FrameType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, Final

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import VALUE, keys_check
from thunder_core.checks.global_state import OPTIONS_OF_DECIMALS, decimal_context
from thunder_core.checks.guard import Guard
from thunder_core.checks.own_lookups import has_own_lookup
from thunder_core.checks.plain import ATOM_TYPES
from thunder_core.checks.source import ConstantSource, EnvironmentSource, GlobalSource, ResultSource, Source
from thunder_core.checks.stored_attributes import PROXIES, cached_by_class
from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import CodeKind, is_in_installed, is_of_thunder, kind_of, kind_of_class
from thunder_frontend.observe.external_calls import CONCURRENT

# ---------------------------------------------------------------- random generators outside of PyTorch


@dataclass(frozen=True, slots=True, eq=False)
class _States:
    """A class of random generators, of contexts of `decimal`, or of streams in memory.

    Attributes:
        module, name: module and name of the class; functions of the module access the state of a default object.
        get, set: read and write the state of an object; with the module as argument, that of the default object.
    """

    module: str
    name: str
    get: Callable[[Any], Any]
    set: Callable[[Any, Any], None]

    def owns(self, value: Any) -> bool:
        """Whether a value is such an object, or the module."""
        module = sys.modules.get(self.module)
        return module is not None and (value is module or isinstance(value, getattr(module, self.name)))


def _set_decimal_context(context: Any, state: tuple[Any, ...]) -> None:
    context = decimal.getcontext() if context is decimal else context
    *options, traps = state
    for name, option in zip(OPTIONS_OF_DECIMALS, options, strict=True):
        setattr(context, name, option)
    context.traps = dict(zip(context.traps, traps, strict=True))


def _stream(stream: Any) -> tuple[Any, int] | None:
    """The content and position of a stream in memory."""
    return None if stream is io or stream.closed else (stream.getvalue(), stream.tell())


def _set_stream(stream: Any, state: tuple[Any, int]) -> None:
    content, position = state
    stream.seek(0)
    stream.truncate()
    stream.write(content)
    stream.seek(position)


def _set_bits(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


def _set_state(bits: Any, state: Any) -> None:
    bits.state = state


_GENERATORS: Final = (
    _States("random", "Random", lambda one: one.getstate(), lambda one, state: one.setstate(state)),
    _States("numpy.random", "RandomState", lambda one: one.get_state(), lambda one, state: one.set_state(state)),
    _States("numpy.random", "Generator", lambda one: one.bit_generator.state, _set_bits),
    _States("numpy.random", "BitGenerator", lambda one: one.state, _set_state),
    _States("decimal", "Context", decimal_context, _set_decimal_context),
    _States("io", "StringIO", _stream, _set_stream),
    _States("io", "BytesIO", _stream, _set_stream),
)
_OF_STATES: Final = frozenset({"bit_generator", "get_state", "getstate", "seed", "set_state", "setstate"})
"""The names by which code reads or sets the state of a generator."""
_REPEATABLE: Final = frozenset(
    {"__subclasses__", "datetime", "decimal", "gc", "numpy", "os", "posix.pipe", "random", "sys", "threading", "time"}
    | {row.name for row in _GENERATORS}
)
"""Modules whose functions have no side effects, so that they may run once more than in eager mode, and classes whose
objects are restored."""


def _generators_of(value: Any) -> _States | None:
    return next((row for row in _GENERATORS if row.owns(value)), None)


class HiddenStates:
    """The states of Python's and NumPy's random generators, and of iterators, at the first visit."""

    def __init__(self) -> None:
        self._objects: dict[int, tuple[Any, str, Any]] = {}
        self._iterators = _IteratorStates()
        self._called: list[str] = []
        for name in dict.fromkeys(row.module for row in _GENERATORS):
            # NumPy imports numpy.random at the first use; None represents a module whose import is blocked
            if sys.modules.get(name.partition(".")[0]) is not None:
                self.watch(importlib.import_module(name), name)

    def watch(self, generator: Any, name: str) -> None:
        """Record the state of a random generator or an iterator, to detect changes."""
        if id(generator) in self._objects:
            return
        is_users = kind_of_class(type(generator)) is CodeKind.USER  # a read of its attributes may run code
        is_users = is_users or has_own_lookup(type(generator))
        if not is_users and getattr(generator, "__name__", None) in _OF_STATES:
            owner = getattr(generator, "__self__", None)
            if generator in _functions() or _generators_of(owner):
                self.called(name)
        state = self._state(generator)
        if state is not None:
            self._objects[id(generator)] = (generator, name, state)

    def read_by(self, generator: Any, source: Source, attributes: Collection[str]) -> None:
        """Code with these names reads an object: it may read or set the state of a generator, or hidden state."""
        is_generator = _generators_of(generator) is not None
        names = _OF_STATES if is_generator else _names_of_hidden_state(type(generator))
        if not names.isdisjoint(attributes) and (is_generator or not _is_of_installed(source.root)):
            self.called(source.describe())

    def of_module(self, module: ModuleType, names: tuple[str, ...]) -> None:
        """Code reads a chain of attributes from a Python module."""
        if not names or names[-1] not in _OF_STATES:
            return
        value: Any = module
        for name in names:  # without the `__getattr__` of a module or an object
            value = vars(value).get(name) if isinstance(value, ModuleType | type) else None
        if any(value is function for function in _functions()):
            self.called(f"{module.__name__}.{'.'.join(names)}")

    def entered(self, frame: FrameType) -> None:
        """A frame of the standard library is entered, which may seed a generator from the operating system."""
        if frame.f_code is random.Random.seed.__code__ and frame.f_locals.get("a") is None:
            self.called("random.Random")
        elif frame.f_code in _OF_THREADS:
            self.called(f"threading.{frame.f_code.co_name}")

    def left(self, frame: FrameType) -> None:
        """A frame has yielded or returned; it may belong to a generator."""
        self._iterators.left(frame)

    def called(self, name: str) -> None:
        """The program called a function with another result in each call."""
        if name not in self._called:
            self._called.append(name)

    def external(self, name: str, owner: Any) -> None:
        """The program calls a builtin function, perhaps a method of ``owner``, that reads or changes external state.

        A stream in memory is restored if the program is recorded again.
        """
        row = _generators_of(owner)
        if row is not None:
            name = f"{row.name}.{name.rpartition('.')[2]}"
            self.watch(owner, name)
        self.called(name)

    def consumed(self) -> list[str]:
        """The names of such functions, and of objects whose state has changed."""
        return [*self._called, *[name for _, name, _ in self._changed()]]

    def states(self) -> dict[int, Any]:
        """The states of the objects, by id, for `changed_since`."""
        return {key: self._state(value) for key, (value, _, _) in self._objects.items()}

    def changed_since(self, before: dict[int, Any]) -> list[str]:
        """The names of the objects with another state than before, or than at a later first visit."""
        states = [
            (name, self._state(value), before.get(key, first)) for key, (value, name, first) in self._objects.items()
        ]
        return [name for name, now, then in states if not _equal(now, then) and _equal(now, now)]  # not `Unknown`

    def rewind(self) -> list[str]:
        """Restore the states of random generators; returns the names of other objects that have changed."""
        advanced = [name for name in self._called if not {name, name.partition(".")[0]} & _REPEATABLE]
        for value, name, state in self._changed():
            row = _generators_of(value)
            if row is None:
                advanced.append(name)
            else:
                row.set(value, state)
        return advanced

    def _changed(self) -> list[tuple[Any, str, Any]]:
        return [item for item in self._objects.values() if not _equal(self._state(item[0]), item[2])]

    def _state(self, value: Any) -> Any:
        row = _generators_of(value)
        return self._iterators.state(value) if row is None else row.get(value)


_OF_THREADS: Final = (threading.active_count.__code__, threading.enumerate.__code__)
"""Functions of the threads that run."""
_WITHOUT_STATE: Final = frozenset(
    {"abc", "builtins", "collections", "contextvars", "ctypes", "enum", "functools", "inspect", "logging", "numpy"}
    | {"operator", "re", "string", "struct", "thread", "threading", "torch", "types", "typing", "weakref"}
    | CONCURRENT
)
"""Packages of library classes whose objects have no hidden state, or such that guards and other checks know."""


def _is_of_installed(root: Source) -> bool:
    """Whether a path begins at a variable or a class of an installed package, which are assumed to be constant."""
    name = root.module if isinstance(root, GlobalSource) else None
    if isinstance(root, ConstantSource):
        name = root.value.__name__ if isinstance(root.value, ModuleType) else getattr(root.value, "__module__", None)
    return is_in_installed(str(name))


@cached_by_class
def _names_of_hidden_state(kind: Any) -> frozenset[str]:
    """The names by which code may read or change what no guard sees of an object that no attribute stores.

    Objects that are compared by value do not change. Exceptions store most attributes outside of ``__dict__``.
    """
    if issubclass(kind, BaseException):
        held = [vars(base) for base in kind.__mro__ if module_of(base) == "builtins" and base is not object]
        of_c = (GetSetDescriptorType, MemberDescriptorType)
        return frozenset(name for names in held for name in names if isinstance(names[name], of_c)) - {"__dict__"}
    if _iterates(kind) or (kind.__eq__ is not object.__eq__ and kind.__hash__ is not None):
        return frozenset()
    packages = [(base, module_of(base).partition(".")[0].lstrip("_")) for base in kind.__mro__]
    held = [vars(base) for base, package in packages if package not in _WITHOUT_STATE]
    return frozenset(name for names in held for name in names if not name.startswith("__"))


def _iterates(kind: type) -> bool:
    """Whether instances are iterators, as `collections.abc.Iterator` decides without comparing classes."""
    if kind in PROXIES:  # these methods are those of the object behind it, if it has them
        return False
    return all(any(vars(base).get(name) is not None for base in kind.__mro__) for name in ("__iter__", "__next__"))


def _functions() -> tuple[Any, ...]:
    """The functions that read or set the state of a default generator."""
    modules = filter(None, [sys.modules.get(row.module) for row in _GENERATORS])
    return tuple(getattr(module, name) for module in modules for name in sorted(_OF_STATES) if hasattr(module, name))


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        if all(type(item) is int for item in left):  # the state of `random`: 625 numbers
            return bool(left == right)
        return len(left) == len(right) and all(map(_equal, left, right))
    same: Any = left == right
    return bool(same.all()) if hasattr(same, "all") else bool(same)


# ---------------------------------------------------------------- iterators

_MODULES = ("builtins", "itertools")
_DEEPEST = 8


class Unknown:
    """An unknown position, which differs from every position, also from itself."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


class _IteratorStates:
    """The positions of iterators, including those of the iterators that they use, and of generators by their yields."""

    def __init__(self) -> None:
        self._yields: dict[int, int] = {}
        self._generators: list[Any] = []

    def left(self, frame: FrameType) -> None:
        """A frame has yielded or returned; it may belong to a generator whose state was read."""
        if id(frame) in self._yields:
            self._yields[id(frame)] += 1

    def state(self, value: Any) -> Any:
        """A value that differs after an iterator has advanced; None for other objects."""
        if isinstance(value, GeneratorType):
            return self._generator(value)
        if _iterates(type(value)):  # others are open files and readers of tables
            return self._iterator(value, 0) if module_of(type(value)) in _MODULES else Unknown()
        return None

    def _generator(self, generator: GeneratorType[Any, Any, Any]) -> Any:
        frame = generator.gi_frame
        if frame is None:
            return "finished"
        if kind_of(frame.f_code) is CodeKind.IGNORED:  # its frame is not observed
            return Unknown()
        if id(frame) not in self._yields:
            self._yields[id(frame)] = 0
            # keeps the frame alive; a reference to the frame would keep the variables of a finished one alive
            self._generators.append(generator)
        return self._yields[id(frame)]

    def _iterator(self, iterator: Iterator[Any], depth: int) -> Any:
        try:
            with warnings.catch_warnings():  # iterators of itertools warn that they will lose this method
                warnings.simplefilter("ignore", DeprecationWarning)
                reduced = iterator.__reduce__()
        except TypeError:  # an iterator of itertools since Python 3.14
            held = gc.get_referents(iterator)  # the class and, for a `itertools.count`, its numbers
            is_count = held[:1] == [itertools.count] and all(type(number) is int for number in held[1:])
            return repr(iterator) if is_count else Unknown()
        return self._part(reduced[1:], depth + 1) if isinstance(reduced, tuple) else Unknown()

    def _part(self, value: Any, depth: int) -> Any:
        """The position of a part in the result of ``__reduce__``."""
        if type(value) in ATOM_TYPES:
            return value
        if depth > _DEEPEST:
            return Unknown()
        if isinstance(value, GeneratorType):
            return self._generator(value)
        if type(value) is tuple:
            return tuple([self._part(item, depth + 1) for item in value])
        if type(value) is list:  # a copy of the remaining items, or the whole list beside an index
            return len(value)
        if _iterates(type(value)):
            return self._iterator(value, depth) if module_of(type(value)) in _MODULES else Unknown()
        if isinstance(value, BuiltinFunctionType | MethodWrapperType) and not isinstance(
            value.__self__, ModuleType | type | None
        ):
            return Unknown()  # the changes of the object by the method are unknown
        return id(value)


# ---------------------------------------------------------------- environment variables

_KIND: Any = type(os.environ)
_READS = {_KIND.__getitem__.__code__}
_WALKS = {_KIND.__iter__.__code__, _KIND.__len__.__code__}
_WRITES = {_KIND.__setitem__.__code__, _KIND.__delitem__.__code__}


class Environment:
    """The environment variables at the start of the observation, and the reads and writes of the program."""

    def __init__(self) -> None:
        self._before = os.environ.copy()
        self._read: set[str] = set()
        self._walked = False
        self._written = False

    def entered(self, frame: FrameType) -> None:
        """A frame of the standard library is entered, which may be a method of `os.environ`."""
        code = frame.f_code
        if code in _READS or code in _WALKS or code in _WRITES:
            caller = frame.f_back
            while caller is not None and kind_of(caller.f_code) is CodeKind.LIBRARY:
                caller = caller.f_back
            if caller is None or kind_of(caller.f_code) is not CodeKind.USER:
                return
            self._walked |= code in _WALKS
            self._written |= code in _WRITES
            key = frame.f_locals.get("key")
            if code in _READS and type(key) is str:
                self._read.add(key)

    def guards(self) -> Iterator[Guard]:
        """The guards of the variables that the program read, and of all names if it iterated them."""
        for name in sorted(self._read):
            yield Check(EnvironmentSource(name), VALUE, self._before.get(name))
        if self._walked:
            yield keys_check(ConstantSource(os.environ, "environ"), tuple(self._before))

    def changes(self) -> Iterator[tuple[EnvironmentSource, str | None]]:
        """The variables that the program set, with their values, and those that it deleted, with None."""
        if self._written:
            now = os.environ.copy()
            for name in self._before.keys() | now.keys():
                if now.get(name) != self._before.get(name):
                    yield EnvironmentSource(name), now.get(name)

    def undo(self) -> None:
        """Restore all variables."""
        for source, _ in tuple(self.changes()):
            before = self._before.get(source.name)
            if before is None:
                del os.environ[source.name]
            else:
                os.environ[source.name] = before


# ---------------------------------------------------------------- results of library functions

_IS_ENABLED_FOR = logging.Logger.isEnabledFor.__code__
_GET_EFFECTIVE_LEVEL = logging.Logger.getEffectiveLevel.__code__


def caller_of_logging(frame: FrameType | None) -> FrameType | None:
    """The innermost frame, from `frame` outwards, that is neither of the module `logging` nor of Thunder."""
    while frame is not None and (frame.f_globals is vars(logging) or is_of_thunder(frame.f_code)):
        frame = frame.f_back
    return frame


class StateReads:
    """The results of library functions that read state of the process; guards call these functions again.

    They are methods of loggers, which logging methods call, too, and the `_FUNCTIONS_OF_STATE`.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[Any, ...], tuple[Callable[[], Any], str, Any]] = {}

    def entered(self, frame: FrameType) -> None:
        """A frame of the standard library is entered, which may be a method of a logger."""
        if frame.f_code is _IS_ENABLED_FOR:
            caller = caller_of_logging(frame)
            if caller is not None and kind_of(caller.f_code) is CodeKind.USER:
                logger, level = frame.f_locals["self"], frame.f_locals["level"]
                name = f"{logger.name}_takes_{logging.getLevelName(level)}"
                self._add((id(logger), level), functools.partial(logger.isEnabledFor, level), name)
        elif frame.f_code is _GET_EFFECTIVE_LEVEL and frame.f_back and kind_of(frame.f_back.f_code) is CodeKind.USER:
            logger = frame.f_locals["self"]
            self._add((id(logger),), logger.getEffectiveLevel, f"{logger.name}_level")

    def of_module(self, module: ModuleType, name: str) -> None:
        """Code reads a variable of a Python module, which may be one of these functions."""
        if name in _FUNCTIONS_OF_STATE.get(module.__name__, ()):
            function = getattr(module, name)
            self._add((module, name), lambda: repr(function()), f"{module.__name__}.{name}")

    def _add(self, key: tuple[Any, ...], function: Callable[[], Any], name: str) -> None:
        if key not in self._read:
            self._read[key] = function, name, function()

    def guards(self) -> Iterator[Guard]:
        """The guards of these results."""
        for function, name, result in self._read.values():
            yield Check(ResultSource(ConstantSource(function, name)), VALUE, result)


_FUNCTIONS_OF_STATE: Final = {"gc": ("isenabled",), "numpy": ("get_printoptions", "geterr", "getbufsize")}
"""Functions without arguments by module."""
