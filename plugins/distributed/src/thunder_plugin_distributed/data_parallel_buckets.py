"""The buckets of gradients that are reduced together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder_core.ir.proxy import TensorProxy

Buckets = tuple[tuple[int, ...], ...]
"""Positions of parameters, bucket by bucket, in the order in which buckets are reduced."""


@dataclass
class _Open:
    """A bucket that is being filled."""

    cap: int
    places: list[int] = field(default_factory=list)
    size: int = 0


def buckets_of(parameters: Sequence[TensorProxy], first: int, cap: int, sparse: Collection[int] = ()) -> Buckets:
    """Buckets of the parameters that require grad, from the last parameter to the first.

    Backward usually computes the gradients in this order. It depends only on the parameters, so ranks with different
    programs reduce the same buckets in the same order.

    Args:
        first, cap: the size in bytes of the first bucket of a dtype and device, and of the other ones.
        sparse: positions of parameters with sparse gradients, each of which is a bucket.
    """
    full: list[list[int]] = []
    opened: dict[Any, _Open] = {}
    for place in reversed(range(len(parameters))):
        parameter = parameters[place]
        if not parameter.requires_grad:
            continue
        if place in sparse:
            full.append([place])
            continue
        key = (parameter.dtype, parameter.device)
        bucket = opened.setdefault(key, _Open(first))
        bucket.places.append(place)
        bucket.size += int(parameter.numel) * parameter.dtype.itemsize
        if bucket.size >= bucket.cap:
            full.append(bucket.places)
            opened[key] = _Open(cap)
    full += [bucket.places for bucket in opened.values() if bucket.places]
    return tuple(sorted(map(tuple, full), key=lambda places: -places[-1]))  # by the gradient that is computed last
