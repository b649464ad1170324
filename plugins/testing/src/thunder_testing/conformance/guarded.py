"""Memory that detects writes out of bounds: tensors in the middle of larger buffers that are filled with a pattern."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import TorchDispatchMode, schema_of
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach

MARGIN: Final = 4096
"""Bytes before and after each tensor, the size of a block of most kernels."""

PATTERNS: Final = (0xFF, 0x00)
"""NaN for floating-point dtypes, and zero: results that read these bytes differ between the two."""

_FACTORIES: Final = frozenset(
    f"{stem}{kind}"
    for kind in ("empty", "zeros", "ones", "full")
    for stem in ("aten::", "aten::new_")
) | {"aten::empty_strided", "aten::new_empty_strided", "aten::empty_permuted"} | frozenset(
    f"aten::{kind}_like" for kind in ("empty", "zeros", "ones", "full")
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Buffer:
    """The memory of a tensor.

    Attributes:
        owner: description of the tensor, for messages.
        memory: all bytes.
        original: the original bytes if none may change; None if the tensor itself may be written.
        stop: position of the byte after the tensor.
        own: whether each byte belongs to an element of the tensor.
    """

    owner: str
    memory: torch.Tensor
    original: torch.Tensor | None
    stop: int
    own: torch.Tensor


class GuardedMemory:
    """Allocates tensors in guarded memory and checks it.

    Args:
        pattern: the byte around the tensors, and in memory that is not initialized.
    """

    def __init__(self, pattern: int) -> None:
        self.pattern = pattern
        self._buffers: list[_Buffer] = []

    def place(self, call: Call, requiring: tuple[int, ...], *, written: bool) -> Call:
        """The call with its tensors in guarded memory, with equal values, shapes and strides.

        Args:
            requiring: positions of the tensors that require grad in the result.
            written: whether eager PyTorch writes to arguments, so that they may change.
        """
        tensors_: list[torch.Tensor] = []
        for index, tensor in enumerate(call.tensors()):
            owner = f"tensor {index} among the arguments"
            guarded_ = self._placed(tensor, owner, copied=True, fixed=not written)
            tensors_.append(guarded_.requires_grad_(index in requiring))
        return call.with_tensors(tensors_)

    def allocations(self) -> TorchDispatchMode:
        """A context in which `torch.empty` and similar functions of Python allocate guarded memory."""
        return _Allocations(self)

    def allocate(self, tensor: torch.Tensor, *, written: bool) -> torch.Tensor:
        """A guarded tensor in place of a new one; ``written`` if it has values already."""
        return self._placed(tensor, "memory that the executor allocated", copied=written, fixed=False)

    def check(self) -> None:
        """Raise `Breach` if a byte changed that must not change."""
        for buffer in self._buffers:
            before = torch.full_like(buffer.memory, self.pattern) if buffer.original is None else buffer.original
            changed = buffer.memory != before
            if buffer.original is None:
                changed &= ~buffer.own
            if bool(changed.any()):
                self._refuse(buffer, changed)

    def _refuse(self, buffer: _Buffer, changed: torch.Tensor) -> None:
        count, first = int(changed.sum()), int(changed.nonzero()[0])
        outside = changed & ~buffer.own
        if not bool(outside.any()):
            raise Breach("arguments unchanged", f"{count} bytes of {buffer.owner} were written")
        first = int(outside.nonzero()[0])
        if first < MARGIN:
            place = f"{MARGIN - first} bytes before"
        elif first >= buffer.stop:
            place = f"{first - buffer.stop} bytes behind the end of"
        else:
            place = "between the elements of"
        raise Breach(
            "memory bounds", f"{int(outside.sum())} bytes were written outside, the first {place} {buffer.owner}"
        )

    def _placed(self, tensor: torch.Tensor, owner: str, *, copied: bool, fixed: bool) -> torch.Tensor:
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            return tensor.detach().clone() if copied else tensor
        plain = tensor.detach().resolve_conj().resolve_neg()
        shape, stride, size = tuple(plain.shape), plain.stride(), plain.element_size()
        offset = int(plain.storage_offset())
        count = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if plain.numel() else 0
        stop = MARGIN + count * size
        memory = torch.full((stop + MARGIN,), self.pattern, dtype=torch.uint8, device=plain.device)
        own = torch.zeros_like(memory, dtype=torch.bool)
        guarded_ = tensor_at(memory, MARGIN, count, plain.dtype, shape, stride, offset)
        if count:
            bytes_of = own.as_strided((*shape, size), (*[s * size for s in stride], 1), MARGIN + offset * size)
            _distinct(bytes_of).fill_(True)
        if copied and count:
            _distinct(guarded_).copy_(_distinct(plain))
        self._buffers.append(_Buffer(owner, memory, memory.clone() if fixed else None, stop, own))
        return guarded_


def _distinct(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without the repetitions of expanded dimensions."""
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


class _Allocations(TorchDispatchMode):
    def __init__(self, guard: GuardedMemory) -> None:
        super().__init__()
        self._guard = guard

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = schema_of(func).name
        if name in _FACTORIES and isinstance(result, torch.Tensor):
            return self._guard.allocate(result, written="empty" not in name)
        return result


def tensor_at(
    memory: torch.Tensor, start: int, count: int, dtype: torch.dtype, shape: Any, stride: Any, offset: int
) -> torch.Tensor:
    """A tensor whose storage begins at byte ``start`` of ``memory`` and has ``count`` elements.

    Its storage offset is ``offset``, so PyTorch's bounds checks of storages apply. It keeps ``memory`` alive. On
    devices other than CPU and CUDA, the storage is that of ``memory``, and begins before the tensor.
    """
    size = torch.empty(0, dtype=dtype).element_size()
    guarded_ = torch.empty(0, dtype=dtype, device=memory.device)
    if not count:
        return guarded_.new_empty(shape)
    if memory.device.type == "cpu":
        storage = torch.frombuffer(_buffer(memory, start, count * size), dtype=torch.uint8).untyped_storage()
    elif memory.device.type == "cuda":
        storage = torch.as_tensor(_CudaArray(memory, start, count * size), device=memory.device).untyped_storage()
    else:
        storage, offset = memory.untyped_storage(), start // size + offset
    return guarded_.set_(storage, offset, shape, stride)


def _buffer(memory: torch.Tensor, start: int, size: int) -> Any:
    buffer = (ctypes.c_char * size).from_address(memory.data_ptr() + start)
    buffer.owner = memory  # type: ignore[attr-defined]
    return buffer


class _CudaArray:
    """Bytes of a tensor on a GPU, for conversion to a tensor through the CUDA array interface."""

    def __init__(self, memory: torch.Tensor, start: int, size: int) -> None:
        self.owner = memory
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (memory.data_ptr() + start, False),
            "strides": None,
            "version": 3,
        }
