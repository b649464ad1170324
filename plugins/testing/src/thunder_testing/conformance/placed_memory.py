"""Tensors over memory that lies inside of a larger piece."""

from __future__ import annotations

import ctypes
from typing import Any

import torch


def tensor_at(
    memory: torch.Tensor, start: int, count: int, dtype: torch.dtype, shape: Any, stride: Any, offset: int
) -> torch.Tensor:
    """A tensor whose storage begins at byte ``start`` of ``memory`` and holds ``count`` elements.

    So its storage offset is ``offset``, and PyTorch's own checks of storages hold. It keeps ``memory`` alive. Where the
    device is neither CPU nor CUDA, the storage is that of ``memory``, and begins before the tensor.
    """
    size = torch.empty(0, dtype=dtype).element_size()
    made = torch.empty(0, dtype=dtype, device=memory.device)
    if not count:
        return made.new_empty(shape)
    if memory.device.type == "cpu":
        storage = torch.frombuffer(_buffer(memory, start, count * size), dtype=torch.uint8).untyped_storage()
    elif memory.device.type == "cuda":
        storage = torch.as_tensor(_CudaArray(memory, start, count * size), device=memory.device).untyped_storage()
    else:
        storage, offset = memory.untyped_storage(), start // size + offset
    return made.set_(storage, offset, shape, stride)


def _buffer(memory: torch.Tensor, start: int, size: int) -> Any:
    buffer = (ctypes.c_char * size).from_address(memory.data_ptr() + start)
    buffer.owner = memory  # type: ignore[attr-defined]
    return buffer


class _CudaArray:
    """Bytes of a tensor on a GPU, for PyTorch to make a tensor of."""

    def __init__(self, memory: torch.Tensor, start: int, size: int) -> None:
        self.owner = memory
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (memory.data_ptr() + start, False),
            "strides": None,
            "version": 3,
        }
