"""Whether a program consumed state that PyTorch does not keep: random generators, clocks, iterators from outside."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection
from types import FrameType, ModuleType
from typing import Any, Final

from thunder_core.guards.iterator_state import IteratorStates

_OF_STATES: Final = frozenset({"bit_generator", "get_state", "getstate", "seed", "set_state", "setstate"})
"""How generators of Python and NumPy are asked for their states, or given one."""
_REPEATABLE: Final = frozenset({"datetime", "gc", "numpy", "random", "sys", "time"})
"""Modules whose functions may run once more than in eager: they only tell something."""


class RandomStates:
    """States of Python's and NumPy's random generators at one moment, and of other such objects as they are met."""

    def __init__(self) -> None:
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._objects: dict[int, tuple[Any, str, Any]] = {}
        self._iterators = IteratorStates()
        self._called: list[str] = []

    def watch(self, generator: Any, name: str) -> None:
        """Also compare a random generator or an iterator from now on."""
        if id(generator) in self._objects:
            return
        owner = getattr(generator, "__self__", None)
        if getattr(generator, "__name__", None) in _OF_STATES and (generator in _functions() or _is_generator(owner)):
            self.called(name)
        state = self._state(generator)
        if state is not None:
            self._objects[id(generator)] = (generator, name, state)

    def asked(self, generator: Any, name: str, attributes: Collection[str]) -> None:
        """Code that names these attributes reads an object: it may read or set a state without changing it."""
        if not _OF_STATES.isdisjoint(attributes) and _is_generator(generator):
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
        """Names of the generators whose state has changed since."""
        found = list(self._called)
        if random.getstate() != self._python:
            found.append("random")
        numpy = sys.modules.get("numpy")
        if self._numpy is not None and numpy is not None and not _equal(numpy.random.get_state(), self._numpy):
            found.append("numpy.random")
        found.extend(name for value, name, state in self._objects.values() if not _equal(self._state(value), state))
        return found

    def rewind(self) -> list[str]:
        """Give random generators the states back that they had; names of all else that has advanced since."""
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        changed = [item for item in self._objects.values() if not _equal(self._state(item[0]), item[2])]
        return [
            *[name for name in self._called if name.partition(".")[0] not in _REPEATABLE],
            *[name for value, name, state in changed if not _set_state(value, state)],
        ]

    def _state(self, value: Any) -> Any:
        state = self._iterators.state(value)
        return _state(value) if state is None else state


def _functions() -> tuple[Any, ...]:
    """Functions of modules that read or set the state of a generator."""
    modules = [random, *([sys.modules["numpy"].random] if "numpy" in sys.modules else [])]
    return tuple(getattr(module, name) for module in modules for name in sorted(_OF_STATES) if hasattr(module, name))


def _is_generator(value: Any) -> bool:
    """Whether a value is a generator of Python or NumPy, or the source of bits of one."""
    numpy = sys.modules.get("numpy")
    kinds = () if numpy is None else (numpy.random.Generator, numpy.random.RandomState, numpy.random.BitGenerator)
    return isinstance(value, (random.Random, *kinds))


def _state(value: Any) -> Any:
    if isinstance(value, random.Random):
        return value.getstate()
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.random.Generator):
        return value.bit_generator.state
    if isinstance(value, numpy.random.RandomState):
        return value.get_state()
    return None


def _set_state(value: Any, state: Any) -> bool:
    """Whether ``value`` is a random generator, which now has that state."""
    if not _is_generator(value):
        return False
    if isinstance(value, random.Random):
        value.setstate(state)
    elif hasattr(value, "set_state"):
        value.set_state(state)
    else:
        value.bit_generator.state = state
    return True


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(_equal, left, right))
    same: Any = left == right
    return bool(same.all()) if hasattr(same, "all") else bool(same)
