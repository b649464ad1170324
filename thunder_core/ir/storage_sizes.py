"""Sizes of the storages of tensors in bytes, computed from their proxies.

Symbolic sizes have the values that they had when the program was recorded; reading them adds no guard.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import torch

from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size, hint_of


def extent_bytes(tensor: TensorProxy) -> int:
    """Bytes from the start of the tensor's storage to the end of its last element: a lower bound of the storage's size.

    The size of a sparse tensor is unknown; it counts as dense.
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
    """Bytes of the distinct elements, which one read or write of the tensor moves. Expanded dimensions count once."""
    if tensor.layout is not torch.strided or 0 in tensor.stride:
        steps = tensor.stride or (1,) * len(tensor.shape)
        sizes = tuple(size if hint_of(step) else min(hint_of(size), 1) for size, step in zip(tensor.shape, steps))
        return _product(sizes) * tensor.dtype.itemsize
    return _product(tensor.shape) * tensor.dtype.itemsize


def storage_bytes(proxies: Iterable[Proxy]) -> dict[int, int]:
    """The bytes of each storage of ``proxies``, by number: the largest extent of a tensor on it."""
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
    """Bytes of the storages that ``proxies`` keep alive. Shared storages count once; numbers and objects are free.

    Args:
        sizes: bytes of storages, by number; a storage not in it is as large as the largest extent of ``proxies`` on it.
        without: numbers of storages that do not count.
    """
    own = storage_bytes(proxies)
    known = sizes or {}
    return sum(known.get(storage, size) for storage, size in own.items() if storage not in without)


def _product(sizes: Iterable[Size]) -> int:
    count = 1
    for size in sizes:
        count *= hint_of(size)
    return count
