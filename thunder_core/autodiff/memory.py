"""Memory of tensor values, in bytes, as their proxies tell it.

Symbolic sizes count with the values that they had when the program was recorded; asking adds no guard.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import torch

from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size, hint_of


def extent_bytes(tensor: TensorProxy) -> int:
    """Bytes from the start of the tensor's memory to the end of its last element: the least that memory can have.

    That of a sparse tensor is unknown; it counts as if it were dense.
    """
    if tensor.layout is not torch.strided:
        return _product(tensor.shape) * tensor.dtype.itemsize
    last = hint_of(tensor.offset)
    for size, step in zip(tensor.shape, tensor.stride):
        length = hint_of(size)
        if not length:
            return 0
        last += (length - 1) * hint_of(step)
    return (last + 1) * tensor.dtype.itemsize


def element_bytes(tensor: TensorProxy) -> int:
    """Bytes of the distinct elements: what reading or writing the tensor once moves. Expanded dimensions count once."""
    if tensor.layout is not torch.strided or 0 in tensor.stride:
        steps = tensor.stride or (1,) * len(tensor.shape)
        sizes = tuple(size if hint_of(step) else min(hint_of(size), 1) for size, step in zip(tensor.shape, steps))
        return _product(sizes) * tensor.dtype.itemsize
    return _product(tensor.shape) * tensor.dtype.itemsize


def storage_bytes(proxies: Iterable[Proxy]) -> dict[int, int]:
    """For each storage number among ``proxies`` the size of that memory: the extent of the largest tensor on it."""
    sizes: dict[int, int] = {}
    for proxy in proxies:
        if isinstance(proxy, TensorProxy):
            extent = extent_bytes(proxy)
            if extent > sizes.get(proxy.storage, -1):
                sizes[proxy.storage] = extent
    return sizes


def bytes_of(
    proxies: Iterable[Proxy], sizes: Mapping[int, int] | None = None, without: Container[int] = frozenset()
) -> int:
    """Memory that ``proxies`` keep alive, in bytes. What they share counts once; numbers and objects are free.

    Args:
        sizes: of whole memories, by storage number; what is not in it is as large as the largest of ``proxies`` on it.
        without: storage numbers that do not count.
    """
    own = storage_bytes(proxies)
    known = sizes or {}
    return sum(known.get(storage, size) for storage, size in own.items() if storage not in without)


def _product(sizes: Iterable[Size]) -> int:
    count = 1
    for size in sizes:
        count *= hint_of(size)
    return count
