"""The contents of NumPy arrays and other buffers at the first visit, to find and undo what a program writes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from thunder_core.checks.arrays import array_content, is_array


@dataclass(frozen=True, slots=True)
class _Held:
    """A buffer at the first visit.

    Attributes:
        value, name: the buffer and its path.
        content: its `array_content`.
        copy: a copy of it.
    """

    value: Any
    name: str
    content: tuple[Any, ...]
    copy: Any

    def is_changed(self) -> bool:
        return array_content(self.value) != self.content

    def restore(self) -> None:
        if is_array(self.value):
            with warnings.catch_warnings():  # NumPy deprecates to assign these attributes
                warnings.simplefilter("ignore", DeprecationWarning)
                self._restore_array()
        else:
            with memoryview(self.value) as view, view.cast("B") as own:
                own[:] = self.copy

    def _restore_array(self) -> None:
        array, (_, (shape, strides, writeable), _) = self.value, self.content
        if writeable:
            array.flags.writeable = True
        if array.dtype != self.copy.dtype:
            if array.flags.c_contiguous:
                array.shape = (-1,)
            array.dtype = self.copy.dtype
        if array.shape != shape:
            if array.size != self.copy.size:
                array.resize(shape, refcheck=False)
            array.shape = shape
        if array.strides != strides:
            array.strides = strides
        array[...] = self.copy
        array.flags.writeable = writeable


class Buffers:
    """The contents of buffers at the first visit."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def visit(self, value: Any, name: str) -> None:
        """Record the content of a buffer, which the program may change."""
        if id(value) in self._held:
            return
        content = array_content(value)
        copy = value.copy("K") if is_array(value) else content[2]
        self._held[id(value)] = _Held(value, name, content, copy)

    def changed(self) -> tuple[str, ...]:
        """The names of the buffers whose content has changed."""
        return tuple([held.name for held in self._held.values() if held.is_changed()])

    def restore(self) -> None:
        """Restore the contents of all buffers."""
        for held in self._held.values():
            if held.is_changed():
                held.restore()
