"""Dependencies between the ops of a trace, and valid orders of groups of ops."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from thunder_core.ir.bound_symbol import BoundSymbol, written_storages
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag


def dependencies(symbols: Sequence[BoundSymbol]) -> list[list[int]]:
    """For each op, the positions of the earlier ops that must run before it.

    They are the ops that define its inputs; earlier ops with effects whose order relative to it must be preserved; for
    written storage, the last writer or creator and the readers since; and the last check of a guessed value, since ops
    after the check may fail for another value.
    """
    definer: dict[str, int] = {}
    order = _Order()
    accesses = _Accesses(written_storages(symbols))
    guess: int | None = None
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
        if accesses.written:
            before.update(accesses.add(index, bound))
        before.discard(index)
        result.append(sorted(before))
        definer.update({proxy.name: index for proxy in bound.outputs()})
    return result


class _Accesses:
    """The accesses to written storages.

    Args:
        written: the storages that some op writes.
    """

    def __init__(self, written: frozenset[int]) -> None:
        self.written = written
        self._writer: dict[int, int] = {}  # the last op that wrote a storage, or created it
        self._readers: dict[int, list[int]] = {}  # since then
        self._known: set[int] = set()

    def add(self, index: int, bound: BoundSymbol) -> set[int]:
        """Note the accesses of the op at ``index``; returns the earlier ops that must run before it."""
        before: set[int] = set()
        for proxy in bound.inputs():
            if not isinstance(proxy, TensorProxy) or proxy.storage not in self.written:
                continue
            self._known.add(proxy.storage)
            if proxy.storage in self._writer:
                before.add(self._writer[proxy.storage])
            if proxy.name in bound.effects.mutates:
                before.update(self._readers.pop(proxy.storage, ()))
                self._writer[proxy.storage] = index
            else:
                self._readers.setdefault(proxy.storage, []).append(index)
        for proxy in bound.outputs():
            if not isinstance(proxy, TensorProxy) or proxy.storage not in self.written:
                continue
            if proxy.storage not in self._known:
                self._writer[proxy.storage] = index
                self._known.add(proxy.storage)
        return before


class _Order:
    """The order among ops with effects.

    Ops that only communicate follow earlier ops of the same channels. Ops with external effects follow all earlier ops
    with effects and precede all later ones. All other effects form one further channel.
    """

    def __init__(self) -> None:
        self._last: dict[str | None, int] = {}
        self._external: int | None = None

    def add(self, index: int, effects: Effects) -> list[int]:
        """Add an op; return the positions of the earlier ops that must precede it."""
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
        preceding = [self._last.get(channel, self._external) for channel in channels]
        self._last.update(dict.fromkeys(channels, index))
        return [earlier for earlier in preceding if earlier is not None]


def run_order(before: Sequence[Sequence[int]], groups: Sequence[Sequence[int]]) -> list[tuple[int, ...]] | None:
    """A topological order of the groups; each position without a group is a group by itself.

    Independent groups are ordered by their first positions. None if the groups depend on each other in a cycle.

    Args:
        before: the result of `dependencies`.
        groups: sorted positions; each position is in at most one group.
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
    ]  # groups are numbered by their first positions
    order = []
    while ready:
        group = heappop(ready)
        order.append(members[group])
        for reader in readers[group]:
            left[reader] -= 1
            if not left[reader]:
                heappush(ready, reader)
    return order if len(order) == len(members) else None
