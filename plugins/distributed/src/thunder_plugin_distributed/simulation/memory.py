"""The memory of a training step, by the lifetimes of the values that ops define."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.effects import WAITS
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import OpaqueProxy, Proxy, TensorProxy, storages_of
from thunder_core.ir.storage_sizes import LiveStorages, bytes_of, extent_bytes
from thunder_core.ir.trace import Trace, derivatives_of, programs_of
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Phase
from thunder_plugin_distributed.program_collectives import issues_of
from thunder_plugin_distributed.recording.operations import RECEIVE


@dataclass(frozen=True)
class Peak:
    """The peak memory of programs, without their inputs.

    Attributes:
        bytes: of all values that are alive at the peak.
        phase: the program that reaches the peak.
        location: the user's line of the peak; None if it is unknown.
    """

    bytes: int
    phase: str
    location: SourceLocation | None


def peak_of(programs: Mapping[Phase, Trace]) -> Peak:
    """The peak of programs that run one after the other: results of forward are alive until backward deletes them.

    Tensors that a collective reads are alive until it is waited for, as in PyTorch. Workspaces of ops and inputs of the
    programs are not included.
    """
    storages = LiveStorages()
    found = Peak(0, "", None)
    phases = list(programs)
    derivatives: dict[str, Trace] = {}
    given = storages_of(programs[phases[0]].inputs)
    names = {p.name: p.storage for p in programs[phases[0]].inputs if isinstance(p, TensorProxy)}
    for phase, trace in programs.items():
        # forward and backward number storages independently, so values are matched by name
        shared = {p.storage: names[p.name] for p in trace.inputs if isinstance(p, TensorProxy) and p.name in names}
        renumbered = _Renumbered(shared, storages)
        for proxy in trace.inputs:
            if isinstance(proxy, TensorProxy) and renumbered.of(proxy) not in given:
                storages.hold(renumbered.of(proxy), proxy.name, extent_bytes(proxy))
        late = _kept_until(trace, derivatives)
        found = max(found, _run(phase, trace, storages, renumbered, given, late), key=lambda peak: peak.bytes)
        derivatives |= derivatives_of(trace)
        for proxy in iterate_proxies(trace.output):
            if isinstance(proxy, TensorProxy):
                names[proxy.name] = renumbered.of(proxy)
    return found


def _run(
    phase: Phase,
    trace: Trace,
    storages: LiveStorages,
    renumbered: _Renumbered,
    given: set[int],
    late: Mapping[str, int],
) -> Peak:
    peak = Peak(storages.total, phase.value, None)
    postponed: dict[int, list[str]] = {}
    for index, op in enumerate(trace.symbols):
        tensors = tensor_inputs_of(op)
        if op.effects.channels == (WAITS,) and op.symbol is not RECEIVE and tensors:
            renumbered.same(op.outputs(), tensors[0])
        for proxy in op.outputs():
            if isinstance(proxy, TensorProxy) and renumbered.of(proxy) not in given:
                storages.hold(renumbered.of(proxy), proxy.name, extent_bytes(proxy))
            elif isinstance(proxy, OpaqueProxy):  # a graph that autograd recorded
                storages.hold(storages.new(), proxy.name, _saved_bytes(op))
        if storages.total > peak.bytes:
            peak = Peak(storages.total, phase.value, op.location)
        for name in (*trace.deletions.get(index, ()), *postponed.pop(index, ())):
            until = late.get(name, index)
            if until > index:
                postponed.setdefault(until, []).append(name)
            else:
                storages.release(name)
    return peak


def _saved_bytes(op: BoundSymbol) -> int:
    """Bytes that the forward program of an op's symbol saves for its backward, besides arguments and results."""
    programs = programs_of(op.symbol)
    if len(programs) < 2:
        return 0
    body = programs[0]
    returned = len(tensor_outputs_of(op))
    there = [*body.inputs, *iterate_proxies(body.output[:returned])]
    given = storages_of(there)
    return bytes_of(iterate_proxies(body.output[returned:]), without=given)


def _kept_until(trace: Trace, derivatives: Mapping[str, Trace]) -> dict[str, int]:
    """For the values that collectives read, by name, the position of the op that waits for the collective."""
    found: dict[str, int] = {}
    for issue in issues_of(trace, derivatives):
        if issue.wait is not None and not issue.inside:
            found |= {proxy.name: issue.wait for proxy in trace.symbols[issue.index].inputs()}
    return found


@dataclass
class _Renumbered:
    """Numbers of the storages of one program among those of all programs."""

    numbers: dict[int, int]
    storages: LiveStorages

    def of(self, proxy: TensorProxy) -> int:
        if proxy.storage not in self.numbers:
            self.numbers[proxy.storage] = self.storages.new()
        return self.numbers[proxy.storage]

    def same(self, proxies: Iterable[Proxy], source: TensorProxy) -> None:
        """Give ``proxies`` the storage of ``source``: the result of a wait is in the buffer of its collective."""
        for proxy in proxies:
            if isinstance(proxy, TensorProxy):
                self.numbers[proxy.storage] = self.of(source)
