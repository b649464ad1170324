"""Selection of the calls with which an operation is tested, and of their variants."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import torch

from thunder_testing.conformance.call import Call, describe_call
from thunder_testing.conformance.recording import is_offered
from thunder_testing.conformance.samples import accepts, calls, draws, finds_positions
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.variants import as_matrices, is_expanded, layouts, shapes, with_negative_dimensions


@dataclass(frozen=True, eq=False)
class Sampler:
    """Creates and caches calls.

    Attributes:
        limit: number of samples of each operation, device and dtype.
    """

    limit: int
    _made: dict[tuple[Subject, str, str, torch.dtype], list[Call]] = field(default_factory=dict, repr=False)

    def calls(self, subject: Subject, kind: str, device: str, dtype: torch.dtype) -> list[Call]:
        """The calls of a kind: ``base``, those with other ``layouts``, or with other ``shapes``."""
        key = (subject, kind, device, dtype)
        if key not in self._made:
            self._made[key] = self._make(subject, kind, device, dtype)
        return self._made[key]

    def _make(self, subject: Subject, kind: str, device: str, dtype: torch.dtype) -> list[Call]:
        if kind == "base":
            available = calls(subject, device, dtype)
            available = _enriched(available) if subject.checks_shapes else available
            return _chosen(subject, available, self.limit) or available[:1]
        base = self.calls(subject, "base", device, dtype)
        if kind == "layouts":
            accepted = [call for call in layouts(base) if accepts(call)]
            return [call for call in accepted if not (is_expanded(call) and finds_positions(call))]
        return list(shapes(base, accepts)) if subject.checks_shapes else []


def _chosen(subject: Subject, available: Sequence[Call], limit: int) -> list[Call]:
    """At most ``limit`` different calls; at most one draws random numbers if possible, because its values are not
    compared.
    """

    def wanted(call: Call) -> bool:
        return is_offered(subject, call)

    random = [call for call in available if draws(call)]
    others = covering([call for call in available if call not in random], limit, wanted)
    if not others:
        return covering(random, limit, wanted)
    return [*others[: max(limit - 1, 1) if random else limit], *covering(random, 1 if limit > 1 else 0, wanted)]


def _enriched(available: Sequence[Call]) -> list[Call]:
    """The calls, with matrices instead of vectors if none has two dimensions, and with negative dimensions."""
    enriched = list(available)
    if not any(tensor.ndim > 1 and tensor.numel() > 1 for call in available for tensor in call.tensors()):
        enriched += [call for call in map(as_matrices, available) if accepts(call)]
    for call in available:
        negative = with_negative_dimensions(call)
        if describe_call(negative) != describe_call(call) and accepts(negative):
            enriched.append(negative)
    return enriched


def covering(calls: Iterable[Call], limit: int, wanted: Callable[[Call], bool] = lambda call: True) -> list[Call]:
    """At most ``limit`` calls in their order, chosen so that they cover most features, and then most pairs of features.

    Features are, for each argument: the number of dimensions, whether a size is 0 or 1, the dtype, a bool or a word,
    the sign of a number, the length of a sequence; and that the author supplied the call. Calls that are not ``wanted``
    are excluded; ``wanted`` is called only for candidates.
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
