"""How far an iterator is, as far as that can be told without advancing it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import BuiltinFunctionType, FrameType, GeneratorType, MethodWrapperType, ModuleType
from typing import Any

from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.guards.plain import ATOM_TYPES

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
