"""Whether tensors that a program writes share memory with its other inputs: one check for all pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from thunder_core.guards.tensor_guard import extent, overlaps

_address = torch.Tensor.data_ptr


class OverlapCheck:
    """Says whether no pair of some tensors overlaps.

    A decoder with a cache writes two tensors in each layer and reads all its parameters: thousands of pairs. The
    addresses of the last call that was right are right again; others are sorted, and only neighbours are compared.

    Args:
        pairs: positions of tensors that must not overlap.
        tensors: with the metadata that the tensors of all calls will have.
    """

    __slots__ = ("_known", "_lengths", "_pairs")

    def __init__(self, pairs: Iterable[tuple[int, int]], tensors: Sequence[torch.Tensor]) -> None:
        self._pairs = frozenset(pairs)
        self._known: list[int] = []
        self._lengths: list[Any] | None = [_length(one) for one in tensors] if all(map(_has_address, tensors)) else None

    def apart(self, *tensors: torch.Tensor) -> bool:
        """True when no pair of them shows the same memory."""
        if self._lengths is None:
            return not any(overlaps(tensors[one], tensors[other]) for one, other in self._pairs)
        starts = list(map(_address, tensors))
        if starts == self._known:
            return True
        if self._some_overlap(starts, self._lengths, tensors):
            return False
        self._known = starts
        return True

    def _some_overlap(self, starts: list[int], lengths: list[Any], tensors: tuple[torch.Tensor, ...]) -> bool:
        pairs = self._pairs
        begun: list[tuple[int, int]] = []  # position and end of those that reach further than the start of the next
        for start, index in sorted(zip(starts, range(len(starts)))):
            if not lengths[index]:
                continue
            begun = [entry for entry in begun if entry[1] > start]
            for other, _ in begun:
                expected = (index, other) in pairs or (other, index) in pairs
                if expected and overlaps(tensors[index], tensors[other]):  # devices may use the same addresses
                    return True
            begun.append((index, start + lengths[index]))
        return False


def _has_address(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and tensor.layout is torch.strided and tensor.device.type != "meta"


def _length(tensor: torch.Tensor) -> Any:
    """Bytes from its first element to its last."""
    first, end = extent(tensor)
    return end - first
