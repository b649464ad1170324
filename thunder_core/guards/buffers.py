"""Objects whose content is memory that code in C writes: NumPy arrays, objects of ctypes, ``memoryview``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


def is_array(value: Any) -> bool:
    """Whether a value is a NumPy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_buffer(value: Any) -> bool:
    """Whether an object has memory that can be compared: NumPy arrays and objects with Python's buffer protocol."""
    if is_array(value):
        return True
    try:
        memoryview(value).release()
    except (TypeError, ValueError, BufferError):  # it has none, or has released it
        return False
    return True


def array_content(value: Any, *, content: bool = True) -> tuple[Any, ...]:
    """The format and shape of a buffer; also its bytes, unless it is an input of the compiled program.

    Raises:
        TypeError, ValueError, BufferError: ``value`` is no buffer.
    """
    if is_array(value):  # arrays of dates have no buffer protocol
        return value.dtype.str, value.shape, value.tobytes() if content else None
    with memoryview(value) as view:
        return view.format, view.shape, view.tobytes() if content else None


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
            if self.value.shape != self.copy.shape:
                self.value.resize(self.copy.shape, refcheck=False)
            self.value[...] = self.copy
        else:
            with memoryview(self.value) as view, view.cast("B") as own:
                own[:] = self.copy


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
