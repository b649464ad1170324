"""NumPy arrays and other objects whose content is memory that code in C writes: objects of ctypes, ``memoryview``."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch

from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes


def is_array(value: Any) -> bool:
    """Whether a value is a NumPy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_array_class(kind: type) -> bool:
    """Whether a class is that of NumPy arrays, or a subclass: ``isinstance`` believes what an object says instead."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.ndarray)


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
        TypeError, ValueError, BufferError: ``value`` is not a buffer.
    """
    if is_array(value):  # arrays of dates have no buffer protocol
        layout = (value.shape, value.strides, value.flags.writeable)
        return value.dtype.str, layout, value.tobytes() if content else None
    with memoryview(value) as view:
        return view.format, view.shape, view.tobytes() if content else None


def shares_memory(value: Any, tensor: torch.Tensor) -> bool:
    """Whether a buffer may share memory with the storage of a tensor."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    storage = tensor.untyped_storage()
    first = storage.data_ptr()
    start, end = _extent(value)
    return start < first + storage.nbytes() and first < end


def _extent(value: Any) -> tuple[int, int]:
    """The addresses of the first byte of a buffer and of the end of the last."""
    if is_array(value):
        start = value.__array_interface__["data"][0]
        steps = [(size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True)]
        last = sum(step for step in steps if step > 0) + value.itemsize
        return (start + sum(step for step in steps if step < 0), start + last) if value.size else (0, 0)
    with memoryview(value) as view:
        if not view.c_contiguous:
            return _extent(view.obj)
        with view.cast("B") as own, disable_current_modes(), DisableTorchFunction(), warnings.catch_warnings():
            if not own.nbytes:
                return 0, 0
            warnings.simplefilter("ignore", UserWarning)  # PyTorch warns of memory that is read-only
            start = torch.frombuffer(own, dtype=torch.uint8).data_ptr()
            return start, start + own.nbytes
