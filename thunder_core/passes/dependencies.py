"""Which bound symbols of a trace wait for which, and orders in which groups of them can run."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from thunder_core.ir.bound_symbol import BoundSymbol, written_storages
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag


def dependencies(symbols: Sequence[BoundSymbol]) -> list[list[int]]:
    """For each bound symbol the earlier ones that must run before it, by position.

    Those that define what it reads; those with effects before it that it keeps its order with; and for storage that is
    written, the writer before it or the op that created it, and those that read the storage since. What follows
    a check of a guessed value waits for it: it may not work with another value.
    """
    definer: dict[str, int] = {}
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    order = _Order()
    guess: int | None = None
    written = written_storages(symbols)
    known: set[int] = set()
    result: list[list[int]] = []
    for index, bound in enumerate(symbols):
        inputs = bound.inputs()
        before = {definer[proxy.name] for proxy in inputs if proxy.name in definer}
        if guess is not None:
            before.add(guess)
        if Tag.GUESS in bound.symbol.tags:
            guess = index
        if not bound.effects.pure:
            before.update(order.add(index, bound.effects))
        for proxy in inputs if written else ():
            if not isinstance(proxy, TensorProxy) or proxy.storage not in written:
                continue
            known.add(proxy.storage)
            if proxy.storage in writer:
                before.add(writer[proxy.storage])
            if proxy.name in bound.effects.mutates:
                before.update(readers.pop(proxy.storage, ()))
                writer[proxy.storage] = index
            else:
                readers.setdefault(proxy.storage, []).append(index)
        before.discard(index)
        result.append(sorted(before))
        for proxy in bound.outputs():
            definer[proxy.name] = index
            if isinstance(proxy, TensorProxy) and proxy.storage in written and proxy.storage not in known:
                writer[proxy.storage] = index
                known.add(proxy.storage)
    return result


class _Order:
    """The order among bound symbols with effects.

    Those that only communicate follow those of the same channel. Those with external effects, which may be any, follow
    all others and come before all later ones. All other effects are a channel of their own.
    """

    def __init__(self) -> None:
        self._last: dict[str | None, int] = {}
        self._external: int | None = None

    def add(self, index: int, effects: Effects) -> list[int]:
        """The earlier bound symbols that the next one, with ``effects``, follows."""
        if effects.external:
            before = [*self._last.values()]
            self._last.clear()
            if self._external is not None:
                before.append(self._external)
            self._external = index
            return before
        channels: list[str | None] = [*effects.channels]
        if effects.random or effects.mutates:
            channels.append(None)
        found = [self._last.get(channel, self._external) for channel in channels]
        self._last.update(dict.fromkeys(channels, index))
        return [earlier for earlier in found if earlier is not None]


def run_order(before: Sequence[Sequence[int]], groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]] | None:
    """All positions, those of a group together, so that each group follows what it depends on.

    Otherwise in the order of their first positions. None if groups wait for each other in a circle.

    Args:
        before: as `dependencies` returns it.
        groups: sorted positions, each in one group at most. A position that is in no group is one by itself.
    """
    grouped = {index for group in groups for index in group}
    alone = [(index,) for index in range(len(before)) if index not in grouped]
    members = sorted([*alone, *map(tuple, groups)])
    group_of = {index: number for number, positions in enumerate(members) for index in positions}
    waits_for: list[set[int]] = [set() for _ in members]
    readers: list[set[int]] = [set() for _ in members]
    for index, earlier in enumerate(before):
        group = group_of[index]
        for other in earlier:
            if group_of[other] != group:
                waits_for[group].add(group_of[other])
                readers[group_of[other]].add(group)
    left = [len(others) for others in waits_for]
    ready = [
        number for number in range(len(members)) if not left[number]
    ]  # numbers are in the order of first positions
    order = []
    while ready:
        group = heappop(ready)
        order.append(members[group])
        for reader in readers[group]:
            left[reader] -= 1
            if not left[reader]:
                heappush(ready, reader)
    return order if len(order) == len(members) else None
