"""Proxies: the named, typed values of a trace."""

from __future__ import annotations

from dataclasses import dataclass

import torch

Dimension = int | torch.SymInt
"""A size, a stride or an offset: a plain int, or a symbolic one under dynamic shapes."""


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
    shape: tuple[Dimension, ...]
    stride: tuple[Dimension, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    storage: int
    offset: Dimension = 0
    layout: torch.layout = torch.strided

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dimension:
        count: Dimension = 1
        for size in self.shape:
            count = count * size
        return count

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie one after the other in memory, the last dimension first, as PyTorch means it."""
        expected: Dimension = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride)):
            if size == 0:
                return True
            if size != 1:
                if stride != expected:
                    return self.numel == 0
                expected = expected * size
        return self.layout is torch.strided

    @property
    def geometry(self) -> tuple[tuple[Dimension, ...], tuple[Dimension, ...], Dimension]:
        """``(shape, stride, offset)``: which elements of its storage it shows."""
        return self.shape, self.stride, self.offset


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
