"""Proxies: the named, typed values of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

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
        storage: number of the storage; proxies of a trace with equal numbers share storage.
        offset: position of the first element in the storage, in elements.
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
        """`torch.Tensor.is_contiguous`: whether the tensor is dense in row-major order."""
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
        """``(shape, stride, offset)``: the elements of the storage that it covers."""
        return self.shape, self.stride, self.offset

    @property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes, the strides and the offset in one tuple: what may vary between calls."""
        return (*self.shape, *self.stride, self.offset)

    @property
    def can_require_grad(self) -> bool:
        """Whether PyTorch differentiates tensors of this dtype."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    def with_sizes(self, value: Callable[[SizeExpr], Size]) -> TensorProxy:
        """The proxy with ``value(size)`` in place of each varying size, stride and offset."""
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
    """Any other Python object that is an input of the program: a generator, a local autograd.Function, ..."""

    name: str
    type_name: str


Proxy = TensorProxy | NumberProxy | OpaqueProxy
PROXY_TYPES = (TensorProxy, NumberProxy, OpaqueProxy)


def storages_of(values: Iterable[Any]) -> set[int]:
    """Numbers of the storages of the tensors among these values."""
    return {value.storage for value in values if isinstance(value, TensorProxy)}


def differentiable(proxy: Proxy) -> bool:
    """Whether a value is a tensor that requires grad."""
    return isinstance(proxy, TensorProxy) and proxy.requires_grad
