"""Whether a program consumed state that PyTorch does not keep: random generators and iterators that existed before."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from types import GeneratorType
from typing import Any


class RandomStates:
    """States of Python's and NumPy's random generators at one moment, and of other such objects as they are met."""

    def __init__(self) -> None:
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._objects: dict[int, tuple[Any, str, Any]] = {}

    def watch(self, generator: Any, name: str) -> None:
        """Also compare a random generator or an iterator from now on."""
        state = _state(generator)
        if state is not None and id(generator) not in self._objects:
            self._objects[id(generator)] = (generator, name, state)

    def consumed(self) -> list[str]:
        """Names of the generators whose state has changed since."""
        found = []
        if random.getstate() != self._python:
            found.append("random")
        numpy = sys.modules.get("numpy")
        if self._numpy is not None and numpy is not None and not _equal(numpy.random.get_state(), self._numpy):
            found.append("numpy.random")
        found.extend(name for generator, name, state in self._objects.values() if not _equal(_state(generator), state))
        return found


def _state(value: Any) -> Any:
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, GeneratorType):
        return (value.gi_frame is None, value.gi_frame and value.gi_frame.f_lasti)
    if isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools"):
        return _iterator_state(value)
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.random.Generator):
        return value.bit_generator.state
    if isinstance(value, numpy.random.RandomState):
        return value.get_state()
    return None


def _iterator_state(iterator: Iterator[Any]) -> Any:
    """How far an iterator is, as far as ``copy`` could tell; None for those that cannot be copied."""
    try:
        with warnings.catch_warnings():  # those of itertools warn that they will lose this
            warnings.simplefilter("ignore", DeprecationWarning)
            reduced = iterator.__reduce__()
    except TypeError:
        return None
    return repr(reduced[1:]) if isinstance(reduced, tuple) else None


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(_equal, left, right))
    same: Any = left == right
    return bool(same.all()) if hasattr(same, "all") else bool(same)
