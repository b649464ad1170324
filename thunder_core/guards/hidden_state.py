"""State that no path leads to: of random generators, iterators and loggers, and the environment variables.

Environment variables are guarded. A program that consumes another state (random numbers outside of PyTorch, items of
iterators, clocks) is compiled at each call.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import random
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FrameType, GeneratorType, MethodWrapperType, ModuleType
from typing import Any, Final

from thunder_core.guards.check import Check
from thunder_core.guards.code_kinds import CodeKind, is_of_thunder, kind_of
from thunder_core.guards.conditions import VALUE, keys_check
from thunder_core.guards.guard import Guard
from thunder_core.guards.lookups import has_own_lookup
from thunder_core.guards.plain import ATOM_TYPES
from thunder_core.guards.source import ConstantSource, EnvironmentSource
from thunder_core.guards.steps import ReferentSource

# ---------------------------------------------------------------- random generators outside of PyTorch


@dataclass(frozen=True, slots=True, eq=False)
class _Generators:
    """A kind of random generators.

    Attributes:
        module, name: where its class is; the module has functions for the state of a default generator.
        get, set: read and write the state of a generator, or by way of the module that of the default one.
    """

    module: str
    name: str
    get: Callable[[Any], Any]
    set: Callable[[Any, Any], None]

    def owns(self, value: Any) -> bool:
        """Whether a value is such a generator, or the module."""
        module = sys.modules.get(self.module)
        return module is not None and (value is module or isinstance(value, getattr(module, self.name)))


def _set_bits(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


def _set_state(bits: Any, state: Any) -> None:
    bits.state = state


_GENERATORS: Final = (
    _Generators("random", "Random", lambda one: one.getstate(), lambda one, state: one.setstate(state)),
    _Generators("numpy.random", "RandomState", lambda one: one.get_state(), lambda one, state: one.set_state(state)),
    _Generators("numpy.random", "Generator", lambda one: one.bit_generator.state, _set_bits),
    _Generators("numpy.random", "BitGenerator", lambda one: one.state, _set_state),
)
_OF_STATES: Final = frozenset({"bit_generator", "get_state", "getstate", "seed", "set_state", "setstate"})
"""How generators are asked for their states, or given one."""
_REPEATABLE: Final = frozenset({"datetime", "gc", "numpy", "random", "sys", "time"})
"""Modules whose functions may run once more than in eager: they only tell something."""


def _generators_of(value: Any) -> _Generators | None:
    return next((row for row in _GENERATORS if row.owns(value)), None)


class HiddenStates:
    """States of Python's and NumPy's random generators at one moment, and of other such objects as they are met."""

    def __init__(self) -> None:
        self._objects: dict[int, tuple[Any, str, Any]] = {}
        self._iterators = IteratorStates()
        self._called: list[str] = []
        for name in dict.fromkeys(row.module for row in _GENERATORS):
            # NumPy imports its own when it is first used; None stands for a module whose import is blocked
            if sys.modules.get(name.partition(".")[0]) is not None:
                self.watch(importlib.import_module(name), name)

    def watch(self, generator: Any, name: str) -> None:
        """Also compare a random generator or an iterator from now on."""
        if id(generator) in self._objects:
            return
        if not has_own_lookup(type(generator)) and getattr(generator, "__name__", None) in _OF_STATES:
            owner = getattr(generator, "__self__", None)
            if generator in _functions() or _generators_of(owner):
                self.called(name)
        state = self._state(generator)
        if state is not None:
            self._objects[id(generator)] = (generator, name, state)

    def asked(self, generator: Any, name: str, attributes: Collection[str]) -> None:
        """Code that names these attributes reads an object: it may read or set a state without changing it."""
        if not _OF_STATES.isdisjoint(attributes) and _generators_of(generator):
            self.called(name)

    def of_module(self, module: ModuleType, names: tuple[str, ...]) -> None:
        """Code asks a Python module for the first of these names, which leads to the others."""
        value: Any = module
        for name in names:
            value = getattr(value, name, None)
        if names and names[-1] in _OF_STATES and value in _functions():
            self.called(f"{module.__name__}.{'.'.join(names)}")

    def entered(self, frame: FrameType) -> None:
        """A frame of the standard library is entered, which may be the one that seeds a generator from the system."""
        if frame.f_code is random.Random.seed.__code__ and frame.f_locals.get("a") is None:
            self.called("random.Random")

    def left(self, frame: FrameType) -> None:
        """A frame has yielded or returned, which may be that of a generator."""
        self._iterators.left(frame)

    def called(self, name: str) -> None:
        """The program called a function that tells something else each time."""
        if name not in self._called:
            self._called.append(name)

    def consumed(self) -> list[str]:
        """Names of what has another state since, and of functions that were called."""
        return [*self._called, *[name for _, name, _ in self._changed()]]

    def rewind(self) -> list[str]:
        """Give random generators the states back that they had; names of all else that has advanced since."""
        advanced = [name for name in self._called if name.partition(".")[0] not in _REPEATABLE]
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
        state = self._iterators.state(value)
        row = _generators_of(value) if state is None else None
        return state if row is None else row.get(value)


def _functions() -> tuple[Any, ...]:
    """Functions of modules that read or set the state of a default generator."""
    modules = filter(None, [sys.modules.get(row.module) for row in _GENERATORS])
    return tuple(getattr(module, name) for module in modules for name in sorted(_OF_STATES) if hasattr(module, name))


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        if all(type(item) is int for item in left):  # of `random`: 625 numbers
            return bool(left == right)
        return len(left) == len(right) and all(map(_equal, left, right))
    same: Any = left == right
    return bool(same.all()) if hasattr(same, "all") else bool(same)


# ---------------------------------------------------------------- iterators

_MODULES = ("builtins", "itertools")
_DEEPEST = 8


class Unknown:
    """A position that nobody can tell; differs from every position, itself included."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


class IteratorStates:
    """Positions of iterators, of those that they are made from, and of generators by the frames that were left."""

    def __init__(self) -> None:
        self._yields: dict[int, int] = {}
        self._kept: list[Any] = []

    def left(self, frame: FrameType) -> None:
        """A frame has yielded or returned: it may be that of a generator that was asked for."""
        if id(frame) in self._yields:
            self._yields[id(frame)] += 1

    def state(self, value: Any) -> Any:
        """Something that differs when ``value`` has advanced meanwhile; None for other objects than iterators."""
        if isinstance(value, GeneratorType):
            return self._generator(value)
        if isinstance(value, Iterator):  # others: open files, readers of tables
            return self._iterator(value, 0) if type(value).__module__ in _MODULES else Unknown()
        return None

    def _generator(self, generator: GeneratorType[Any, Any, Any]) -> Any:
        frame = generator.gi_frame
        if frame is None:
            return "finished"
        if kind_of(frame.f_code) is CodeKind.IGNORED:  # nobody sees its frame
            return Unknown()
        if id(frame) not in self._yields:
            self._yields[id(frame)] = 0
            self._kept.append(generator)  # the frame lives as long; to keep that would keep what a finished one held
        return self._yields[id(frame)]

    def _iterator(self, iterator: Iterator[Any], depth: int) -> Any:
        try:
            with warnings.catch_warnings():  # those of itertools warn that they will lose this
                warnings.simplefilter("ignore", DeprecationWarning)
                reduced = iterator.__reduce__()
        except TypeError:
            return Unknown()
        return self._part(reduced[1:], depth + 1) if isinstance(reduced, tuple) else Unknown()

    def _part(self, value: Any, depth: int) -> Any:
        """What one of the parts that a copy would be made from says about the position."""
        if type(value) in ATOM_TYPES:
            return value
        if depth > _DEEPEST:
            return Unknown()
        if isinstance(value, GeneratorType):
            return self._generator(value)
        if type(value) is tuple:
            return tuple([self._part(item, depth + 1) for item in value])
        if type(value) is list:  # of what is left, made for the copy, or what is gone through, with the index beside it
            return len(value)
        if isinstance(value, Iterator):
            return self._iterator(value, depth) if type(value).__module__ in _MODULES else Unknown()
        if isinstance(value, BuiltinFunctionType | MethodWrapperType) and not isinstance(
            value.__self__, ModuleType | type | None
        ):
            return Unknown()  # what the method does to its object cannot be seen
        return id(value)


# ---------------------------------------------------------------- environment variables

_KIND: Any = type(os.environ)
_READS = {_KIND.__getitem__.__code__}
_WALKS = {_KIND.__iter__.__code__, _KIND.__len__.__code__}
_WRITES = {_KIND.__setitem__.__code__, _KIND.__delitem__.__code__}


class Environment:
    """The environment variables when the observation began, and which of them the program read."""

    def __init__(self) -> None:
        self._before = os.environ.copy()
        self._read: set[str] = set()
        self._walked = False
        self._written = False

    def entered(self, frame: FrameType) -> None:
        """A frame of the standard library is entered, which may be that of a read or a write."""
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
        """What must stay as it was."""
        for name in sorted(self._read):
            yield Check(EnvironmentSource(name), VALUE, self._before.get(name))
        if self._walked:
            yield keys_check(ConstantSource(os.environ, "environ"), tuple(self._before))

    def changes(self) -> Iterator[tuple[EnvironmentSource, str | None]]:
        """What the program set, and with None what it deleted."""
        if self._written:
            now = os.environ.copy()
            for name in self._before.keys() | now.keys():
                if now.get(name) != self._before.get(name):
                    yield EnvironmentSource(name), now.get(name)

    def undo(self) -> None:
        """Give every variable its value back."""
        for source, _ in tuple(self.changes()):
            before = self._before.get(source.name)
            if before is None:
                del os.environ[source.name]
            else:
                os.environ[source.name] = before


# ---------------------------------------------------------------- levels of loggers

_IS_ENABLED_FOR = logging.Logger.isEnabledFor.__code__


def caller_of_logging(frame: FrameType | None) -> FrameType | None:
    """The first frame outwards from `frame` that is neither of the module `logging` nor Thunder's."""
    while frame is not None and (frame.f_globals is vars(logging) or is_of_thunder(frame.f_code)):
        frame = frame.f_back
    return frame


class LoggerLevels:
    """Which levels of which loggers the program asked for, itself or by logging something."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], tuple[logging.Logger, bool]] = {}

    def entered(self, frame: FrameType) -> None:
        """A frame of the standard library is entered, which may be that of `logging.Logger.isEnabledFor`."""
        if frame.f_code is not _IS_ENABLED_FOR:
            return
        caller = caller_of_logging(frame)
        if caller is not None and kind_of(caller.f_code) is CodeKind.USER:
            logger, level = frame.f_locals["self"], frame.f_locals["level"]
            if (id(logger), level) not in self._asked:
                self._asked[id(logger), level] = logger, logger.isEnabledFor(level)

    def guards(self) -> Iterator[Guard]:
        """Each logger takes a level as it did when it was first asked."""
        for (_, level), (logger, answer) in self._asked.items():
            takes = functools.partial(logger.isEnabledFor, level)
            source = ReferentSource(ConstantSource(takes, f"{logger.name}_takes_{logging.getLevelName(level)}"))
            yield Check(source, VALUE, answer)
