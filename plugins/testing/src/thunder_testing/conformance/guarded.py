"""Memory that notices writes next to it: tensors in the middle of larger buffers that hold a pattern."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import TorchDispatchMode, schema_of
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach

MARGIN: Final = 4096
"""Bytes before and behind each tensor: a block of most kernels."""

PATTERNS: Final = (0xFF, 0x00)
"""NaN for floating-point types, then zero: what depends on these bytes differs between them."""

_FACTORIES: Final = frozenset(
    f"{stem}{kind}"
    for kind in ("empty", "zeros", "ones", "full")
    for stem in ("aten::", "aten::new_")
) | {"aten::empty_strided", "aten::new_empty_strided", "aten::empty_permuted"} | frozenset(
    f"aten::{kind}_like" for kind in ("empty", "zeros", "ones", "full")
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Buffer:
    """One tensor's memory.

    Attributes:
        owner: for people: whose it is.
        memory: all of its bytes.
        original: what they were, where none may change; None where the tensor itself may be written.
        stop: position of the byte behind the tensor.
        own: whether a byte belongs to an element of the tensor.
    """

    owner: str
    memory: torch.Tensor
    original: torch.Tensor | None
    stop: int
    own: torch.Tensor


class GuardedMemory:
    """Makes tensors in guarded memory and checks it.

    Args:
        pattern: the byte around the tensors, and in memory that nobody has written yet.
    """

    def __init__(self, pattern: int) -> None:
        self.pattern = pattern
        self._buffers: list[_Buffer] = []

    def place(self, call: Call, requiring: tuple[int, ...], *, written: bool) -> Call:
        """The call with its tensors in guarded memory: same values, shapes and strides.

        Args:
            requiring: positions of the tensors that then require grad.
            written: whether eager PyTorch writes to arguments, so that they may change.
        """
        placed: list[torch.Tensor] = []
        for index, tensor in enumerate(call.tensors()):
            owner = f"tensor {index} among the arguments"
            made = self._placed(tensor, owner, copied=True, fixed=not written)
            placed.append(made.requires_grad_(index in requiring))
        return call.with_tensors(placed)

    def allocations(self) -> TorchDispatchMode:
        """A context in which `torch.empty` and its like, called from Python, give guarded memory."""
        return _Allocations(self)

    def allocate(self, tensor: torch.Tensor, *, written: bool) -> torch.Tensor:
        """A guarded tensor in place of one that was made just now; ``written`` if it has values already."""
        return self._placed(tensor, "memory that the executor allocated", copied=written, fixed=False)

    def check(self) -> None:
        """Raise `Breach` if a byte changed that must not."""
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
        made = tensor_at(memory, MARGIN, count, plain.dtype, shape, stride, offset)
        if count:
            bytes_of = own.as_strided((*shape, size), (*[s * size for s in stride], 1), MARGIN + offset * size)
            _distinct(bytes_of).fill_(True)
        if copied and count:
            _distinct(made).copy_(_distinct(plain))
        self._buffers.append(_Buffer(owner, memory, memory.clone() if fixed else None, stop, own))
        return made


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
