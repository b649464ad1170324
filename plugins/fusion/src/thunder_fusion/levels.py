"""Levels of the operations of a trace, from which `thunder_fusion.regions` forms regions.

The level of an operation is greater than those of all operations it depends on, or equal if both have the same label.
It is as high as the users of its values allow: so an operation is in the region of its users, and is not computed long
before. Operations that nothing waits for, such as the matmul that computes the gradient of a weight for an optimizer at
the end of the program, are computed as early as possible instead: they free what they read. Communication whose results
no operation reads, such as the reduction of that gradient, starts as early as possible, too: otherwise it, and the
values that it needs, could wait for later communication of its process group.

Results that nothing else waits for, such as the gradient of a weight, need not be computed as early as possible.
Operations that only such results need (a *side*) wait for the next region that reads the same memory, if there is one,
so that the region reads it once. In the backward of ``matmul(gate * up)``, the weight's gradient needs ``gate * up``
again, and the region that differentiates it, one matmul later, reads ``gate`` and ``up`` anyway.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import storages_of
from thunder_core.ir.size import hint_of

Dependencies = Sequence[Sequence[int]]
"""For each operation other operations, by position in the trace."""
Pairs = frozenset[tuple[int, int]]
"""An earlier and a later operation."""
Step = Callable[[int, int], int]
"""The required difference of the levels of the second and the first argument."""


def levels_of(
    symbols: Sequence[BoundSymbol], before: Dependencies, labels: Sequence[int | None], apart: Pairs = frozenset()
) -> list[int]:
    """The level of each operation, in time linear in their number.

    Args:
        symbols: the operations.
        before: for each operation those that it depends on.
        labels: the label of each operation, or None.
        apart: dependencies between operations that must not have the same level.
    """
    step = partial(_step, labels, apart)
    after: list[list[int]] = [[] for _ in symbols]
    for index, earlier in enumerate(before):
        for other in earlier:
            after[other].append(index)
    ends = _ends(symbols, after, labels, communication=True)
    levels = _latest(before, step, ends, _earliest(before, step, {}))
    # Sizes decide where sides wait. Ranks may have other sizes, and must communicate in the same order in all groups.
    floors = _floors(symbols, after, labels, levels, _ends(symbols, after, labels, communication=False))
    return _latest(before, step, ends, _earliest(before, step, floors)) if floors else levels


def _step(labels: Sequence[int | None], apart: Pairs, earlier: int, later: int) -> int:
    joined = labels[later] is not None and labels[earlier] == labels[later]
    return 0 if joined and (earlier, later) not in apart else 1


def _earliest(before: Dependencies, step: Step, floors: dict[int, int]) -> list[int]:
    levels = [0] * len(before)
    for index, earlier in enumerate(before):
        lowest = floors.get(index, 0)
        levels[index] = max([lowest, *[levels[other] + step(other, index) for other in earlier]])
    return levels


def _latest(before: Dependencies, step: Step, ends: frozenset[int], levels: list[int]) -> list[int]:
    highest: dict[int, int] = {}  # allowed by the users of an operation
    for index in range(len(before) - 1, -1, -1):
        if index not in ends:
            levels[index] = highest.get(index, levels[index])
        for other in before[index]:
            bound = levels[index] - step(other, index)
            highest[other] = min(highest.get(other, bound), bound)
    return levels


def _floors(
    symbols: Sequence[BoundSymbol],
    after: Dependencies,
    labels: Sequence[int | None],
    levels: Sequence[int],
    ends: frozenset[int],
) -> dict[int, int]:
    """The least levels of operations whose sides wait for a later region."""
    readers: dict[int, list[int]] | None = None
    floors: dict[int, int] = {}
    for side in _sides(after, labels, ends):
        readers = readers if readers is not None else _readers_of_memory(symbols)
        level = _where_read(side, symbols, labels, levels, readers)
        if level is not None:
            waiting = {reader for index in side for reader in after[index] if reader in ends}
            floors.update({index: max(level + 1, floors.get(index, 0)) for index in waiting})
    return floors


def _ends(
    symbols: Sequence[BoundSymbol], after: Dependencies, labels: Sequence[int | None], *, communication: bool
) -> frozenset[int]:
    """Operations without label whose results no others read, or only such operations.

    They have no effects, or, with ``communication``, they communicate. Operations that follow communication in the
    order of its process group, and do not read its results, do not count.
    """
    ends: set[int] = set()
    last: set[int] = set()  # ends, and operations that nothing reads
    for index in range(len(symbols) - 1, -1, -1):
        communicates = communication and bool(symbols[index].effects.channels)
        readers = _reading(symbols, index, after[index]) if communicates else after[index]
        if not readers:
            last.add(index)
        if labels[index] is None and (communicates or symbols[index].effects.pure) and last.issuperset(readers):
            ends.add(index)
            last.add(index)
    return frozenset(ends)


def _reading(symbols: Sequence[BoundSymbol], index: int, later: Sequence[int]) -> list[int]:
    """Those of ``later`` that read a result of the operation."""
    results = {proxy.name for proxy in symbols[index].outputs()}
    return [other for other in later if not results.isdisjoint([proxy.name for proxy in symbols[other].inputs()])]


def _sides(after: Dependencies, labels: Sequence[int | None], ends: frozenset[int]) -> Iterator[list[int]]:
    """Connected operations of one label whose values only ends read."""
    side_of: dict[int, list[int]] = {}
    for index in range(len(labels) - 1, -1, -1):
        label = labels[index]
        if label is None or not after[index]:
            continue
        if not all(reader in ends or reader in side_of for reader in after[index]):
            continue
        joined = [index]
        for reader in after[index]:
            other = side_of.get(reader)
            if other is not None and other is not joined and labels[reader] == label:
                joined, other = (joined, other) if len(joined) >= len(other) else (other, joined)
                joined.extend(other)
                side_of.update(dict.fromkeys(other, joined))
        side_of[index] = joined
    yield from {id(side): side for side in side_of.values()}.values()


def _where_read(
    side: Sequence[int],
    symbols: Sequence[BoundSymbol],
    labels: Sequence[int | None],
    levels: Sequence[int],
    readers: dict[int, list[int]],
) -> int | None:
    """The first later level whose region reads most of the side's inputs, and more than the region of the side."""
    side_level = max(levels[index] for index in side)
    label, members = labels[side[0]], set(side)
    created = storages_of(proxy for index in side for proxy in symbols[index].outputs())
    memories = {
        proxy.storage: math.prod(map(hint_of, proxy.shape)) * proxy.dtype.itemsize
        for index in side
        for proxy in tensor_inputs_of(symbols[index])
        if proxy.storage not in created
    }
    shared: Counter[int] = Counter()
    for memory, size in memories.items():
        for level in {levels[index] for index in readers[memory] if labels[index] == label and index not in members}:
            shared[level] += size
    least = max(sum(memories.values()) // 2, shared[side_level])
    return min((level for level, size in shared.items() if level > side_level and size > least), default=None)


def _readers_of_memory(symbols: Sequence[BoundSymbol]) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {}
    for index, bound in enumerate(symbols):
        for storage in {proxy.storage for proxy in tensor_inputs_of(bound)}:
            readers.setdefault(storage, []).append(index)
    return readers
