"""Proxies: the named, typed values of a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from thunder_core.ir.size import Size, SizeExpr, with_size


@dataclass(frozen=True, slots=True)
class TensorProxy:
    """A tensor value.

    Attributes:
        name: a Python identifier, unique in its trace.
        shape: sizes.
        stride: strides in elements.
        dtype: element type.
        device: where the data lives.
        requires_grad: as PyTorch reports it at this point of the program.
        storage: identity of the memory; proxies of a trace with equal numbers share memory.
        offset: first element's position in that memory, in elements.
        layout: dense, or one of PyTorch's sparse layouts; sparse tensors have no strides (an empty tuple) and no views.
    """

    name: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    storage: int
    offset: Size = 0
    layout: torch.layout = torch.strided

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Size:
        count: Size = 1
        for size in self.shape:
            count = count * size
        return count

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie one after the other in memory, the last dimension first, as PyTorch means it."""
        expected: Size = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride)):
            if size == 0:
                return True
            if size != 1:
                if stride != expected:
                    return self.numel == 0
                expected = expected * size
        return self.layout is torch.strided

    @property
    def geometry(self) -> tuple[tuple[Size, ...], tuple[Size, ...], Size]:
        """``(shape, stride, offset)``: which elements of its storage it shows."""
        return self.shape, self.stride, self.offset

    def with_sizes(self, value: Callable[[SizeExpr], Size]) -> TensorProxy:
        """The same value with something else for each of its sizes that varies."""
        shape = tuple([with_size(size, value) for size in self.shape])
        stride = tuple([with_size(step, value) for step in self.stride])
        return replace(self, shape=shape, stride=stride, offset=with_size(self.offset, value))


@dataclass(frozen=True, slots=True)
class NumberProxy:
    """A Python number that is known only when the program runs (the result of ``torch.equal``, say)."""

    name: str
    python_type: type


@dataclass(frozen=True, slots=True)
class OpaqueProxy:
    """Any other Python object handed to the program: a generator, a locally defined autograd.Function, ..."""

    name: str
    type_name: str


Proxy = TensorProxy | NumberProxy | OpaqueProxy
PROXY_TYPES = (TensorProxy, NumberProxy, OpaqueProxy)
