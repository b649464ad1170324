"""The front end ``numpy``: records functions on NumPy arrays by PyTorch's NumPy layer."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from thunder_core.checks.check import Check
from thunder_core.checks.conditions import ALIAS, LENGTH, TYPE, keys_check
from thunder_core.checks.source import ArgumentSource, CreatedSource, ItemSource, KeywordSource, Source
from thunder_core.contract import Recording, Request
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import disable_current_modes
from thunder_core.tracing.frames import add_internal_package, add_package
from thunder_frontend.record.front_end import front_end as python_front_end
from thunder_frontend.record.interceptions import add_interceptions, intercepted
from thunder_frontend.record.reconstruction import Reconstructor, add_builder
from thunder_frontend.record.recorder import Recorder, active_recorder
from thunder_plugin_numpy import creation
from thunder_plugin_numpy.coverage import argument_not_covered
from thunder_plugin_numpy.dtypes import is_covered
from thunder_plugin_numpy.operands import asarray, from_numpy, is_traced
from thunder_plugin_numpy.traced_array import TracedArray, array_of, scalar_of

_CONTAINERS: Final = frozenset({tuple, list, dict})
"""By hash: comparing a class of the user's may run its code."""


@dataclass(frozen=True)
class NumPyFrontEnd:
    """Records a function with arrays in place of the tensors of PyTorch's front end of Python programs."""

    def record(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], request: Request
    ) -> Recording:
        """Record ``function(*args, **kwargs)``: arrays in the arguments are inputs of the trace, of constant sizes.

        Raises:
            UnsupportedError: the program uses a function, a dtype or a class of arrays that is not covered; the message
                names it.
            Exception: as for `thunder_frontend.record.front_end.PythonFrontEnd.record`.
        """
        token = creation.recording.set(True)
        try:
            return python_front_end.record(_program_of(function), args, kwargs, request)
        finally:
            creation.recording.reset(token)


def _program_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls ``function`` with arrays of the trace in place of those of the call."""

    def program(*args: Any, **kwargs: Any) -> Any:
        recorder = active_recorder()
        assert recorder is not None
        arguments = _Arguments(recorder)
        given = [
            arguments.converted(value, ArgumentSource(index, _parameter(function, index)))
            for index, value in enumerate(args)
        ]
        named = {name: arguments.converted(value, KeywordSource(name)) for name, value in kwargs.items()}
        result = intercepted(function)(*given, **named)
        arguments.check_classes()
        arguments.check_containers()
        return result

    program.__wrapped__ = function  # type: ignore[attr-defined]
    program.__name__ = program.__qualname__ = getattr(function, "__name__", type(function).__name__)
    return program


def _parameter(function: Callable[..., Any], index: int) -> str:
    """The name of a positional parameter, for messages; empty if it is unknown."""
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    position = index + (plain is not function)
    return names[position] if position < len(names) else ""


class _Arguments:
    """The arrays among the arguments of a call, as inputs of the trace."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._observer = recorder.mode.observer
        self._known: dict[int, tuple[Any, TracedArray, Source]] = {}
        self._containers: dict[int, tuple[Any, Any, tuple[Any, ...], Source]] = {}

    def converted(self, value: Any, source: Source) -> Any:
        """``value`` with arrays of the trace in place of arrays, also in tuples, lists and dictionaries."""
        kind = type(value)
        if kind is np.ndarray:
            return self._array(value, source)
        if isinstance(value, np.ndarray) and not is_traced(value):
            raise argument_not_covered(
                f"{source.describe()} is a {kind.__module__}.{kind.__qualname__}, a subclass of numpy.ndarray",
                "pass a plain array: numpy.asarray(x)",
            )
        if kind not in _CONTAINERS or not holds_arrays(value):
            return value
        if id(value) in self._containers:
            _, copy, _, first = self._containers[id(value)]
            if copy is None:
                raise argument_not_covered(f"{source.describe()} is a {kind.__name__} of arrays that contains itself")
            self._observer.add_guard(Check(source, ALIAS, first))
            return copy
        self._containers[id(value)] = value, None, (), source
        self._observer.add_guard(Check(source, TYPE, kind))
        if kind is dict:
            self._observer.add_guard(keys_check(source, tuple(value)))
            copy = {key: self._item(item, ItemSource(source, key)) for key, item in value.items()}
        else:
            self._observer.add_guard(Check(source, LENGTH, len(value)))
            copy = kind([self._item(item, ItemSource(source, index)) for index, item in enumerate(value)])
        self._containers[id(value)] = value, copy, _contents(copy), source
        return copy

    def check_containers(self) -> None:
        """Refuse a program that changes a container of arrays: the program has a copy of it."""
        for _, copy, contents, source in self._containers.values():
            now = _contents(copy)
            if len(now) != len(contents) or any(one is not other for one, other in zip(now, contents, strict=True)):
                raise argument_not_covered(
                    f"the program changes {source.describe()}, a {type(copy).__name__} that holds arrays",
                    "return the new items",
                )

    def check_classes(self) -> None:
        """Refuse a program that reads classes by ``type(x)``: that of an array of the trace is another one."""
        location = self._observer.reads_classes
        if location is not None:
            raise UnsupportedError(
                "the program reads the class of an object by type(), which is not that of NumPy for arrays",
                location=location,
                advice=("use isinstance(x, numpy.ndarray)",),
            )

    def _item(self, value: Any, source: Source) -> Any:
        """An item of a container: the program reads it from a copy, so that its content is guarded here."""
        result = self.converted(value, source)
        if result is value:
            self._observer.visit(value, source)
        return result

    def _array(self, array: Any, source: Source) -> TracedArray:
        if id(array) in self._known:
            _, traced, first = self._known[id(array)]
            self._observer.add_guard(Check(source, ALIAS, first))
            return traced
        if not is_covered(array.dtype):
            raise argument_not_covered(
                f"{source.describe()} is an array of the dtype {array.dtype}, with which PyTorch does not compute",
                "convert it outside of the compiled function: x.astype(...)",
            )
        self._observer.visit(array, source)
        self._observer.source_of(array)  # it becomes a tensor: its layout is guarded, and not its content
        read = partial(_tensor_of_array, array.flags.writeable)
        with disable_current_modes():
            tensor = read(array)
        created = CreatedSource(read, (source,), source.describe())
        self._recorder.inputs.add(tensor, created)
        copied = "has a stride that PyTorch's tensors cannot have" if not _shares_memory(array) else ""
        traced = TracedArray(tensor, argument=array, copied=copied)
        self._known[id(array)] = array, traced, source
        return traced


def holds_arrays(value: Any, outer: tuple[int, ...] = ()) -> bool:
    """Whether nested tuples, lists and dictionaries hold an array; ``outer`` are the ids of those around ``value``."""
    kind = type(value)
    if kind in _CONTAINERS:
        items = value.values() if kind is dict else value
        return id(value) not in outer and any(holds_arrays(item, (*outer, id(value))) for item in items)
    return isinstance(value, np.ndarray)


def _tensor_of_array(writable: bool, array: Any) -> torch.Tensor:
    """The tensor in the memory of an array.

    Raises:
        TypeError: it is no plain array, or ``writable`` differs; a guard.
    """
    if type(array) is not np.ndarray or array.flags.writeable is not writable:
        raise TypeError("another class of arrays")
    if not _shares_memory(array):
        return from_numpy(array.copy())
    return from_numpy(array if writable else asarray(_Readable(array)))


def _shares_memory(array: np.ndarray) -> bool:
    """Whether a tensor can have the memory of an array: its strides are whole numbers of elements, and not negative."""
    return all(stride >= 0 and not stride % array.itemsize for stride in array.strides)


def _contents(container: Any) -> tuple[Any, ...]:
    """The keys and items of a container."""
    return (*container.keys(), *container.values()) if type(container) is dict else tuple(container)


class _Readable:
    """The memory of a read-only array, which `torch.from_numpy` accepts without a warning: nothing writes to it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        interface = dict(array.__array_interface__)
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _build(reconstructor: Reconstructor, value: TracedArray) -> str:
    """The expression for an array that the program returns or stores."""
    if value.argument is not None:
        return reconstructor.expression(value.argument)
    create = scalar_of if value.is_scalar else array_of
    return reconstructor.assign(value, f"{reconstructor.constant(create)}({reconstructor.expression(value.tensor)})")


add_package(os.path.dirname(__file__))
add_internal_package(os.path.dirname(np.__file__))  # so that an operation's line is the user's
add_builder(TracedArray, _build)
add_interceptions(creation.ROWS)
front_end: Final = NumPyFrontEnd()
"""The front end ``numpy`` of configurations."""
