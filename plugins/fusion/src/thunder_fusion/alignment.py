"""Split regions that would equal others but for lines at their start or end.

The first layer of a model makes the mask for all layers, the last lines of backward add up the gradient of an
embedding. Such lines are in a region that each layer has, which would be compiled once more for that layer. They become
separate regions: a call and some traffic more for the whole program, and a region less to compile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_fusion.keys import ops_key

Lines = list[int]

_MOST_TRIED: Final = 8  # kinds of regions that one region is compared with


def align_regions(
    symbols: Sequence[BoundSymbol], before: Sequence[Sequence[int]], regions: Sequence[Lines]
) -> list[Lines]:
    """The regions, some of them as two or three, so that more are equal.

    A region is split if no other equals it, and at least half of it equals regions that occur more than once.

    Args:
        symbols: the lines.
        before: for each line, those that it depends on.
        regions: positions of lines, in order, that may be in regions with others.
    """
    cores = [_without_last_views(symbols, before, region) for region in regions]
    equal: defaultdict[Hashable, list[int]] = defaultdict(list)
    for number, core in enumerate(cores):
        equal[ops_key([symbols[index] for index in core])].append(number)
    common = [(key, _each(symbols, cores[same[0]])) for key, same in equal.items() if key is not None and len(same) > 1]
    common.sort(key=lambda item: -len(item[1]))
    found: list[Lines] = []
    for key, same in equal.items():
        if len(same) > 1 or key is None:
            found += [list(regions[number]) for number in same]
        else:
            found += _split(symbols, before, regions[same[0]], cores[same[0]], common)
    return found


def _without_last_views(symbols: Sequence[BoundSymbol], before: Sequence[Sequence[int]], region: Lines) -> Lines:
    """The region without views that only others read: they are taken outside of it anyway."""
    read: set[int] = set()
    core = []
    for index in reversed(region):
        if index in read or not symbols[index].is_view():
            core.append(index)
            read.update(before[index])
    return core[::-1]


def _each(symbols: Sequence[BoundSymbol], region: Lines) -> list[Hashable]:
    return [ops_key([symbols[index]]) for index in region]


def _split(
    symbols: Sequence[BoundSymbol],
    before: Sequence[Sequence[int]],
    region: Lines,
    core: Lines,
    common: Sequence[tuple[Hashable, list[Hashable]]],
) -> list[Lines]:
    """The region as it is, or as what comes before a common one, that, and what comes after it."""
    fitting = [item for item in common if len(core) <= 2 * len(item[1]) < 2 * len(core)][:_MOST_TRIED]
    own = _each(symbols, core) if fitting else []
    for key, wanted in fitting:
        kept = _subsequence(own, wanted, core)
        if kept is None or ops_key([symbols[index] for index in kept]) != key:
            continue
        parts = _around(before, region, set(kept))
        if parts is not None:
            first, last = parts
            return [part for part in (first, kept, last) if part]
    return [region]


def _subsequence(own: Sequence[Hashable], wanted: Sequence[Hashable], region: Lines) -> Lines | None:
    """Lines of the region that are, one by one, the wanted ones; None if there are none."""
    places = iter(zip(own, region, strict=True))
    kept = [next((index for key, index in places if key == one), None) for one in wanted]
    return None if None in kept else [index for index in kept if index is not None]


def _around(before: Sequence[Sequence[int]], region: Lines, kept: set[int]) -> tuple[Lines, Lines] | None:
    """The other lines of the region: those that these need, and the rest; None if some would be between."""
    members, needed = set(region), set(kept)
    for index in reversed(region):
        if index in needed:
            needed |= members.intersection(before[index])
    first = [index for index in region if index in needed and index not in kept]
    if any(kept.intersection(before[index]) for index in first):
        return None
    return first, [index for index in region if index not in needed]
