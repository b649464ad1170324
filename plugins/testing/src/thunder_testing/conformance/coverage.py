"""Choose few calls of many, so that each kind of argument still occurs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import combinations
from typing import Any

import torch

from thunder_testing.conformance.call import Call


def covering(calls: Iterable[Call], limit: int, wanted: Callable[[Call], bool] = lambda call: True) -> list[Call]:
    """At most ``limit`` calls, in their order: first those that bring most that is new, then new pairs of such things.

    New is, in each place of the arguments: the number of dimensions, whether one has the size 0 or 1, the dtype, a
    truth value or a word, the sign of a number, the length of a sequence; and that a call is one of those given. Calls
    that are not ``wanted`` are left out; only the others that are chosen are asked about.
    """
    candidates = list(calls)
    singles = [frozenset(_features(call)) for call in candidates]
    pairs = [frozenset(map(frozenset, combinations(features, 2))) for features in singles]
    seen: set[Hashable] = set()
    together: set[Hashable] = set()
    chosen: list[int] = []
    left = list(range(len(candidates)))
    while left and len(chosen) < limit:
        gains = {index: (len(singles[index] - seen), len(pairs[index] - together)) for index in left}
        best = max(left, key=gains.__getitem__)
        if chosen and not any(gains[best]):
            break
        left.remove(best)
        if not wanted(candidates[best]):
            continue
        chosen.append(best)
        seen |= singles[best]
        together |= pairs[best]
    return [candidates[index] for index in sorted(chosen)]


def _features(call: Call) -> Iterator[Hashable]:
    yield "given", call.given
    for place, value in [*enumerate(call.args), *call.kwargs.items()]:
        yield from _of_value((place,), value)


def _of_value(place: tuple[Hashable, ...], value: Any) -> Iterator[Hashable]:
    if isinstance(value, torch.Tensor):
        yield place, "dimensions", value.ndim
        yield place, value.dtype
        if 0 in value.shape:
            yield place, "empty"
        if 1 in value.shape:
            yield place, "size 1"
        return
    yield place, type(value)
    if isinstance(value, tuple | list):
        yield place, "length", len(value)
        for item in value:
            yield from _of_value((*place, "item"), item)
    elif isinstance(value, bool | str | torch.dtype | torch.memory_format):
        yield place, value
    elif isinstance(value, int | float):
        yield place, "sign", (value > 0) - (value < 0)
