"""Which elements of a storage strided tensors cover, whether two tensors overlap, and storages inside of others.

Offsets count in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from thunder_core.errors import SizeVariesError
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, are_constant, as_constants, hint_of, known_at_most

_EXACT_LIMIT = 1 << 24  # largest number of elements for which an exact comparison allocates a mask


def end(proxy: TensorProxy) -> Any:
    """The offset one past the last element; the offset itself for an empty tensor. It may vary between calls."""
    if 0 in proxy.shape:
        return proxy.offset
    last: Any = sum((size - 1) * step for size, step in zip(proxy.shape, proxy.stride, strict=True))
    return 1 + proxy.offset + last


def expanded(proxy: TensorProxy) -> bool:
    """Whether a dimension has stride 0 and more than one element, or a varying size."""
    return 0 not in proxy.shape and any(
        stride == 0 and not known_at_most(size, 1) for size, stride in zip(proxy.shape, proxy.stride, strict=True)
    )


def overlaps_itself(proxy: TensorProxy) -> bool:
    """Whether two indices may address the same element. Conservative: True if not decided."""
    if nested(proxy.shape, proxy.stride):
        return False
    if expanded(proxy) or end(proxy) > _EXACT_LIMIT:
        return True
    counts = torch.zeros(end(proxy), dtype=torch.bool, device="cpu")
    _covered(counts, proxy).fill_(True)
    return int(counts.sum()) < int(proxy.numel)


def nested(shape: Sequence[Size], strides: Sequence[Size]) -> bool:
    """Whether each stride exceeds the extent of all dimensions with smaller strides; then no two indices coincide."""
    if 0 in shape:
        return True
    if not are_constant((*shape, *strides)):
        return _nested_by_terms(shape, strides)
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size == 1:
            continue
        if stride <= reach:
            return False
        reach += int(stride) * (int(size) - 1)
    return True


def _nested_by_terms(shape: Sequence[Size], strides: Sequence[Size]) -> bool:
    """`nested` for varying sizes: whether it holds for all their values.

    Raises:
        SizeVariesError: the facts about the sizes do not decide it.
    """
    reach: Size = 0  # distance to the last element within the dimensions visited so far
    span: Size = 1
    for stride, size in sorted(zip(strides, shape, strict=True), key=lambda pair: (hint_of(pair[0]), hint_of(pair[1]))):
        if size == 1:
            continue
        if stride == 0:
            return False
        if stride != span and not known_at_most(reach + 1, stride):
            raise SizeVariesError(f"whether strides {tuple(strides)} of sizes {tuple(shape)} overlap is not known")
        span = stride * size
        reach = reach + span - stride
    return True


def dense(proxy: TensorProxy) -> bool:
    """Whether the tensor covers each element between its first and its last exactly once."""
    expected: int = 1
    pairs = zip(proxy.stride, proxy.shape, strict=True)
    for stride, size in sorted(pairs, key=lambda pair: (hint_of(pair[0]), hint_of(pair[1]))):
        if size == 1:
            continue
        if stride != expected:
            return 0 in proxy.shape
        expected = expected * size  # type: ignore[assignment]
    return True


def contiguous(proxy: TensorProxy) -> bool:
    """Whether the strides are those of a new tensor of this shape, dimensions of size 1 excepted."""
    expected: int = 1
    for size, stride in zip(reversed(proxy.shape), reversed(proxy.stride), strict=True):
        if size != 1 and stride != expected:
            return 0 in proxy.shape
        expected = expected * size  # type: ignore[assignment]
    return True


def covers(outer: TensorProxy, inner: TensorProxy) -> bool:
    """Whether every element of ``inner`` belongs to ``outer``. Conservative: False if not decided."""
    if outer.dtype != inner.dtype:
        return False
    if dense(outer):
        return known_at_most(outer.offset, inner.offset) and known_at_most(end(inner), end(outer))
    span = _exact_span(outer, inner)
    if span is None:
        return outer.geometry == inner.geometry
    marks = torch.zeros(span, dtype=torch.bool, device="cpu")
    _covered(marks, outer).fill_(True)
    return bool(_covered(marks, inner).all())


def disjoint(one: TensorProxy, other: TensorProxy) -> bool:
    """Whether two tensors share no element. Conservative: False if not decided."""
    if 0 in one.shape or 0 in other.shape:
        return True
    scale_one, scale_other = one.dtype.itemsize, other.dtype.itemsize
    if known_at_most(end(one) * scale_one, other.offset * scale_other):
        return True
    if known_at_most(end(other) * scale_other, one.offset * scale_one):
        return True
    span = _exact_span(one, other)
    if one.dtype != other.dtype or span is None:
        return False
    marks = torch.zeros(span, dtype=torch.bool, device="cpu")
    _covered(marks, one).fill_(True)
    return not bool(_covered(marks, other).any())


def overlap_in_part(one: TensorProxy, other: TensorProxy) -> bool:
    """Whether two tensors in one storage share elements and differ in geometry, for the sizes of this call.

    As ``get_overlap_status`` of PyTorch (ATen/MemoryOverlap.cpp), which decides it for dense tensors: False for others.
    """
    if one.geometry == other.geometry or not (dense(one) and dense(other)):
        return False
    (first, last), (start, stop) = [
        (hint_of(proxy.offset) * proxy.dtype.itemsize, hint_of(end(proxy)) * proxy.dtype.itemsize)
        for proxy in (one, other)
    ]
    return max(first, start) < min(last, stop)


def _exact_span(one: TensorProxy, other: TensorProxy) -> int | None:
    """The mask length for an exact comparison of two tensors; None if it exceeds the limit or sizes vary."""
    if not are_constant(one.sizes + other.sizes):
        return None
    span: int = max(end(one), end(other))
    return span if span <= _EXACT_LIMIT else None


def _covered(marks: torch.Tensor, proxy: TensorProxy) -> torch.Tensor:
    return marks.as_strided(*as_constants(proxy.geometry))


class StoragePosition(NamedTuple):
    """The position of one storage inside another.

    Attributes:
        storage: the number of the outer storage.
        shift: offset of the inner storage in bytes, since views may have another dtype.
    """

    storage: int
    shift: Size = 0

    @classmethod
    def between(cls, old: TensorProxy, new: TensorProxy) -> StoragePosition:
        """The position of the storage of ``old`` in that of ``new``, such that both tensors have the same elements."""
        if old.offset is new.offset and old.dtype is new.dtype:
            return cls(new.storage)  # avoids the difference of equal symbolic offsets
        return cls(new.storage, new.offset * new.dtype.itemsize - old.offset * old.dtype.itemsize)

    def moved(self, proxy: TensorProxy) -> TensorProxy:
        """A proxy in the inner storage as a proxy in the outer one."""
        distance = self.shift // proxy.dtype.itemsize
        return replace(proxy, storage=self.storage, offset=proxy.offset + distance)
