"""Splitting of regions that would equal others except for operations at their start or end.

The first layer of a model computes the mask for all layers; the last operations of backward add up the gradient of an
embedding. Such operations join a region that each layer has, which would then be compiled once more for that layer.
They become separate regions, at the cost of a call and some memory traffic in the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_fusion.keys import ops_key

Region = list[int]
"""The positions of its operations in the trace."""

_MOST_TRIED: Final = 8  # kinds of regions with which one region is compared


def align_regions(
    symbols: Sequence[BoundSymbol], before: Sequence[Sequence[int]], regions: Sequence[Region]
) -> list[Region]:
    """The regions, some of them split into two or three, so that more are equal.

    A region is split if no other equals it, and at least half of it equals regions that occur more than once.

    Args:
        symbols: the operations.
        before: for each operation those that it depends on.
        regions: positions of operations, in order, that may be fused with others.
    """
    cores = [_without_last_views(symbols, before, region) for region in regions]
    equal: defaultdict[Hashable, list[int]] = defaultdict(list)
    for number, core in enumerate(cores):
        equal[ops_key([symbols[index] for index in core])].append(number)
    common = [(key, _each(symbols, cores[same[0]])) for key, same in equal.items() if key is not None and len(same) > 1]
    common.sort(key=lambda item: -len(item[1]))
    aligned: list[Region] = []
    for key, same in equal.items():
        if len(same) > 1 or key is None:
            aligned += [list(regions[number]) for number in same]
        else:
            aligned += _split(symbols, before, regions[same[0]], cores[same[0]], common)
    return aligned


def _without_last_views(symbols: Sequence[BoundSymbol], before: Sequence[Sequence[int]], region: Region) -> Region:
    """The region without views that only other operations read, which are computed outside of it anyway."""
    read: set[int] = set()
    core = []
    for index in reversed(region):
        if index in read or not symbols[index].is_view():
            core.append(index)
            read.update(before[index])
    return core[::-1]


def _each(symbols: Sequence[BoundSymbol], region: Region) -> list[Hashable]:
    return [ops_key([symbols[index]]) for index in region]


def _split(
    symbols: Sequence[BoundSymbol],
    before: Sequence[Sequence[int]],
    region: Region,
    core: Region,
    common: Sequence[tuple[Hashable, list[Hashable]]],
) -> list[Region]:
    """The region unchanged, or split into the part before a common region, that, and the part after it."""
    fitting = [item for item in common if len(core) <= 2 * len(item[1]) < 2 * len(core)][:_MOST_TRIED]
    keys_ = _each(symbols, core) if fitting else []
    for key, wanted in fitting:
        selected = _subsequence(keys_, wanted, core)
        if selected is None or ops_key([symbols[index] for index in selected]) != key:
            continue
        parts = _around(before, region, set(selected))
        if parts is not None:
            first, last = parts
            return [part for part in (first, selected, last) if part]
    return [region]


def _subsequence(keys_: Sequence[Hashable], wanted: Sequence[Hashable], region: Region) -> Region | None:
    """Operations of the region that equal the wanted ones, one by one; None if there are none."""
    places = iter(zip(keys_, region, strict=True))
    selected = [next((index for key, index in places if key == one), None) for one in wanted]
    return None if None in selected else [index for index in selected if index is not None]


def _around(before: Sequence[Sequence[int]], region: Region, selected: set[int]) -> tuple[Region, Region] | None:
    """The other operations of the region: those that these need, and the rest; None if some would be between."""
    members, needed = set(region), set(selected)
    for index in reversed(region):
        if index in needed:
            needed |= members.intersection(before[index])
    first = [index for index in region if index in needed and index not in selected]
    if any(selected.intersection(before[index]) for index in first):
        return None
    return first, [index for index in region if index not in needed]
