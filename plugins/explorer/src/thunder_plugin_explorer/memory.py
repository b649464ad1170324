"""The memory of a program over its ops, by the lifetimes of the values that they define."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thunder_core.ir.proxy import TensorProxy, storages_of
from thunder_core.ir.storage_sizes import LiveStorages, bytes_of, extent_bytes
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Phase


@dataclass(frozen=True)
class Holder:
    """A storage that is alive at the peak.

    Attributes:
        name: the first value on it.
        bytes: its size.
        phase: the program that defines it.
        index: the position of the op that defines it; -1 for an input of backward that forward does not compute.
    """

    name: str
    bytes: int
    phase: str
    index: int


@dataclass(frozen=True)
class MemoryTimeline:
    """The estimated memory of programs that run one after the other, without their inputs and workspaces of ops.

    Attributes:
        inputs: bytes of the inputs of the first program, such as parameters, which are alive all the time.
        bytes: for each program the bytes that are alive while each of its ops runs.
        peak: the largest of these.
        phase, index: the op that reaches the peak.
        holders: the storages that are alive there, the largest first.
    """

    inputs: int
    bytes: Mapping[str, tuple[int, ...]]
    peak: int
    phase: str
    index: int
    holders: tuple[Holder, ...]


def memory_timeline(programs: Mapping[Phase, Trace]) -> MemoryTimeline:
    """The timeline of executable programs in the order in which they run.

    Results of forward, and what it saves, are alive until backward deletes them. Sizes that vary have the values of the
    call that was compiled.
    """
    first = next(iter(programs.values()))
    given = storages_of(first.inputs)
    names = {proxy.name: proxy.storage for proxy in first.inputs if isinstance(proxy, TensorProxy)}
    storages, alive = LiveStorages(), _Alive()
    points: dict[str, tuple[int, ...]] = {}
    peak, phase_of_peak, index_of_peak = 0, "", -1
    holders: tuple[Holder, ...] = ()
    for phase, trace in programs.items():
        # forward and backward number storages independently, so values are matched by name
        numbers = {p.storage: names[p.name] for p in trace.inputs if isinstance(p, TensorProxy) and p.name in names}

        def number(proxy: TensorProxy, numbers: dict[int, int] = numbers) -> int:
            if proxy.storage not in numbers:
                numbers[proxy.storage] = storages.new()
            return numbers[proxy.storage]

        def hold(proxy: TensorProxy, index: int, phase: Phase = phase) -> None:
            storage = number(proxy)
            if storage not in given:
                storages.hold(storage, proxy.name, extent_bytes(proxy))
                alive.hold(storage, Holder(proxy.name, extent_bytes(proxy), phase.value, index))

        for proxy in trace.inputs:
            if isinstance(proxy, TensorProxy):
                hold(proxy, -1)
        for name in trace.deletions.get(-1, ()):
            storages.release(name)
            alive.release(name)
        totals: list[int] = []
        for index, op in enumerate(trace.symbols):
            for proxy in op.outputs():
                if isinstance(proxy, TensorProxy):
                    hold(proxy, index)
            totals.append(storages.total)
            if storages.total > peak:
                peak, phase_of_peak, index_of_peak = storages.total, phase.value, index
                holders = alive.largest()
            for name in trace.deletions.get(index, ()):
                storages.release(name)
                alive.release(name)
        points[phase.value] = tuple(totals)
        names |= {p.name: number(p) for p in iterate_proxies(trace.output) if isinstance(p, TensorProxy)}
    return MemoryTimeline(bytes_of(first.inputs), points, peak, phase_of_peak, index_of_peak, holders)


class _Alive:
    """The storages that are alive, with the value that defined each."""

    def __init__(self) -> None:
        self._holders: dict[int, Holder] = {}
        self._names: dict[int, set[str]] = {}
        self._storage_of: dict[str, int] = {}

    def hold(self, storage: int, holder: Holder) -> None:
        before = self._holders.get(storage)
        if before is None:
            self._holders[storage] = holder
        elif holder.bytes > before.bytes:
            self._holders[storage] = Holder(before.name, holder.bytes, before.phase, before.index)
        self._names.setdefault(storage, set()).add(holder.name)
        self._storage_of[holder.name] = storage

    def release(self, name: str) -> None:
        storage = self._storage_of.pop(name, None)
        if storage is not None:
            self._names[storage].discard(name)
            if not self._names[storage]:
                del self._names[storage], self._holders[storage]

    def largest(self) -> tuple[Holder, ...]:
        return tuple(sorted(self._holders.values(), key=lambda holder: -holder.bytes))
