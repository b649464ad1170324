"""The memory of a training step, by liveness: what the programs' lines define, until it is deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from thunder_core.acquire.wrapper_line import programs_of
from thunder_core.autodiff.memory import bytes_of, extent_bytes
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import WAITS
from thunder_core.ir.proxy import OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Phase
from thunder_core.runtime.collectives import issues_of
from thunder_core.symbols.collectives import RECEIVE


@dataclass(frozen=True)
class Peak:
    """The largest sum of what programs hold at once, beside their inputs, in bytes.

    Attributes:
        bytes: the sum.
        phase: the program in which it is.
        location: the user's line.
    """

    bytes: int
    phase: str
    location: str | None


def peak_of(programs: Mapping[Phase, Trace]) -> Peak:
    """The peak of programs that run one after the other: what forward returns lives until backward deletes it.

    What a collective reads counts until it is waited for, as PyTorch keeps it. Memory that a line uses while it runs,
    and frees, is not seen; nor are the program's inputs, which are there anyway.
    """
    memories = _Memories()
    found = Peak(0, "", None)
    phases = list(programs)
    given = {p.storage for p in programs[phases[0]].inputs if isinstance(p, TensorProxy)}
    names = {p.name: p.storage for p in programs[phases[0]].inputs if isinstance(p, TensorProxy)}
    for phase, trace in programs.items():
        # backward numbers its storages anew, so values are matched by name, which forward and backward share
        shared = {p.storage: names[p.name] for p in trace.inputs if isinstance(p, TensorProxy) and p.name in names}
        renumbered = _Renumbered(shared, memories)
        for proxy in trace.inputs:
            if isinstance(proxy, TensorProxy) and renumbered.of(proxy) not in given:
                memories.hold(renumbered.of(proxy), proxy.name, extent_bytes(proxy))
        found = max(found, _run(phase, trace, memories, renumbered, given), key=lambda peak: peak.bytes)
        for proxy in iterate_proxies(trace.output):
            if isinstance(proxy, TensorProxy):
                names[proxy.name] = renumbered.of(proxy)
    return found


def _run(phase: Phase, trace: Trace, memories: _Memories, renumbered: _Renumbered, given: set[int]) -> Peak:
    late = _kept_until(trace)
    peak = Peak(memories.total, phase.value, None)
    postponed: dict[int, list[str]] = {}
    for index, line in enumerate(trace.symbols):
        tensors = [proxy for proxy in line.inputs() if isinstance(proxy, TensorProxy)]
        if WAITS in line.effects.channels and line.symbol is not RECEIVE and tensors:
            renumbered.same(line.outputs(), tensors[0])
        for proxy in line.outputs():
            if isinstance(proxy, TensorProxy) and renumbered.of(proxy) not in given:
                memories.hold(renumbered.of(proxy), proxy.name, extent_bytes(proxy))
            elif isinstance(proxy, OpaqueProxy):  # a graph that autograd recorded
                memories.hold(memories.new(), proxy.name, _saved_bytes(line))
        if memories.total > peak.bytes:
            place = None if line.location is None else line.location.place()
            peak = Peak(memories.total, phase.value, place)
        for name in (*trace.deletions.get(index, ()), *postponed.pop(index, ())):
            until = late.get(name, index)
            if until > index:
                postponed.setdefault(until, []).append(name)
            else:
                memories.release(name)
    return peak


def _saved_bytes(line: BoundSymbol) -> int:
    """Bytes that the forward program of a line's symbol saves for its backward, beside arguments and results."""
    programs = programs_of(line.symbol)
    if len(programs) < 2:
        return 0
    body = programs[0]
    returned = len([proxy for proxy in line.outputs() if isinstance(proxy, TensorProxy)])
    there = [*body.inputs, *iterate_proxies(body.output[:returned])]
    given = {proxy.storage for proxy in there if isinstance(proxy, TensorProxy)}
    return bytes_of(iterate_proxies(body.output[returned:]), without=given)


def _kept_until(trace: Trace) -> dict[str, int]:
    """For what collectives read, by name, the position of the line that waits for them."""
    found: dict[str, int] = {}
    for issue in issues_of(trace):
        if issue.wait is not None and not issue.inside:
            found |= {proxy.name: issue.wait for proxy in trace.symbols[issue.index].inputs()}
    return found


@dataclass
class _Memories:
    """Memories that are held, each until all its names are released."""

    total: int = 0
    _last_number: int = 0
    _holders: dict[int, set[str]] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _memory: dict[str, int] = field(default_factory=dict)

    def new(self) -> int:
        """A number for a memory that has none."""
        self._last_number -= 1
        return self._last_number

    def hold(self, number: int, name: str, size: int) -> None:
        """A value is in a memory, which has at least ``size`` bytes."""
        if number not in self._holders:
            self._holders[number], self._sizes[number] = set(), 0
        if size > self._sizes[number]:
            self.total += size - self._sizes[number]
            self._sizes[number] = size
        self._holders[number].add(name)
        self._memory[name] = number

    def release(self, name: str) -> None:
        number = self._memory.pop(name, None)
        if number is None:
            return
        self._holders[number].discard(name)
        if not self._holders[number]:
            self.total -= self._sizes.pop(number)
            del self._holders[number]


@dataclass
class _Renumbered:
    """Numbers for the memories of one program, among those of all."""

    numbers: dict[int, int]
    memories: _Memories

    def of(self, proxy: TensorProxy) -> int:
        if proxy.storage not in self.numbers:
            self.numbers[proxy.storage] = self.memories.new()
        return self.numbers[proxy.storage]

    def same(self, proxies: Iterable[Proxy], source: TensorProxy) -> None:
        """The proxies lie in the memory of another one: what arrives is where it was written."""
        for proxy in proxies:
            if isinstance(proxy, TensorProxy):
                self.numbers[proxy.storage] = self.of(source)
