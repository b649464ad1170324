"""The storages that are alive while programs run, by the lifetimes of the values that their ops define."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import OpaqueProxy, TensorProxy, storages_of
from thunder_core.ir.storage_sizes import bytes_of, storage_bytes
from thunder_core.ir.trace import Trace, derivatives_of, programs_of
from thunder_core.ir.tree import iterate_proxies


@dataclass(frozen=True, slots=True)
class Alive:
    """A storage that is alive.

    Attributes:
        name: the first value on it.
        bytes: its size.
        program, index: the program whose op at this position defines the value; -1 for an input.
    """

    name: str
    bytes: int
    program: str
    index: int


@dataclass(frozen=True, slots=True)
class Communication:
    """How the collectives of a program change lifetimes.

    Attributes:
        late: for values that are in use after the last op that reads them, the position of the op that ends the use.
        same: for results that are in the storage of an argument of their op, the name of the argument.
    """

    late: Mapping[str, int] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)


class LiveStorages:
    """The storages that are alive at an op of a program: each until all of its names are released.

    Attributes:
        total: their bytes.
    """

    def __init__(self) -> None:
        self.total = 0
        self._last_number = 0
        self._storages: dict[int, tuple[Alive, set[str]]] = {}
        self._storage_of: dict[str, int] = {}

    def new(self) -> int:
        """The number of a storage that no trace numbers; it is negative."""
        self._last_number -= 1
        return self._last_number

    def hold(self, number: int, value: Alive) -> None:
        """A value is in a storage of at least ``value.bytes`` bytes."""
        first, names = self._storages.get(number, (value, set[str]()))
        before = first.bytes if names else 0
        if value.bytes > before:
            self.total += value.bytes - before
            first = Alive(first.name, value.bytes, first.program, first.index)
        names.add(value.name)
        self._storages[number] = first, names
        self._storage_of[value.name] = number

    def release(self, name: str) -> None:
        """A value is deleted."""
        number = self._storage_of.pop(name, None)
        if number is None:
            return
        first, names = self._storages[number]
        names.discard(name)
        if not names:
            self.total -= first.bytes
            del self._storages[number]

    def release_others(self, names: Container[str]) -> None:
        """All values are deleted except those of these names."""
        for name in [name for name in self._storage_of if name not in names]:
            self.release(name)

    def largest(self) -> tuple[Alive, ...]:
        """The storages, the largest first."""
        return tuple(sorted([first for first, _ in self._storages.values()], key=lambda each: -each.bytes))


@dataclass(frozen=True, slots=True)
class Moment:
    """An op that runs, and the storages that are alive meanwhile.

    Attributes:
        program: the program of the op.
        index: its position; -1 for the start of a program.
        op: the op; None for the start of a program.
        storages: valid until the next moment.
    """

    program: str
    index: int
    op: BoundSymbol | None
    storages: LiveStorages

    @property
    def bytes(self) -> int:
        """The bytes of the storages."""
        return self.storages.total


def moments(
    programs: Mapping[str, Trace],
    communication: Callable[[Trace, Mapping[str, Trace]], Communication] | None = None,
    returned: Container[str] | None = None,
) -> Iterator[Moment]:
    """The ops of executable programs that run one after the other, in order, after the start of each program.

    Inputs of the first program and workspaces of ops are not included, nor is memory of the CPU if one of these inputs
    is on an accelerator. Results of a program are alive until a later one deletes them. Sizes that vary have the values
    of the call that was compiled.

    Args:
        communication: called with each program, and the backward programs of graphs that autograd recorded in earlier
            ones, by their names. Without it, collectives are like other ops.
        returned: names of the results that the caller gets: these are alive to the end, and others until the end of
            their program, unless a later one takes them.
    """
    storages = LiveStorages()
    derivatives: dict[str, Trace] = {}
    first = next(iter(programs.values()))
    given = storages_of(first.inputs)
    names = {proxy.name: proxy.storage for proxy in first.inputs if isinstance(proxy, TensorProxy)}
    taken = {proxy.name for trace in list(programs.values())[1:] for proxy in trace.inputs}
    held: set[str] = set()
    counts_host = not _on_accelerator(first)
    for title, trace in programs.items():
        walk = _Walk(title, trace, storages, given, names, returned or (), counts_host)
        yield from walk.run(Communication() if communication is None else communication(trace, derivatives))
        derivatives |= derivatives_of(trace)
        results = {proxy.name: proxy for proxy in iterate_proxies(trace.output)}
        held |= {name for name in results if returned is None or name in returned or name in taken}
        storages.release_others(held)
        names |= {name: walk.number(p) for name, p in results.items() if isinstance(p, TensorProxy)}


class _Walk:
    """One program of `moments`. Programs number storages independently, so values are matched by ``names``."""

    def __init__(
        self,
        title: str,
        trace: Trace,
        storages: LiveStorages,
        given: set[int],
        names: Mapping[str, int],
        returned: Container[str],
        counts_host: bool,
    ) -> None:
        self.title = title
        self.trace = trace
        self.storages = storages
        self.given = given
        self.returned = returned
        self.counts_host = counts_host
        self.sizes = storage_bytes(trace.values())
        self.numbers = {
            p.storage: names[p.name] for p in trace.inputs if isinstance(p, TensorProxy) and p.name in names
        }

    def number(self, proxy: TensorProxy) -> int:
        """The number of a tensor's storage among those of all programs."""
        if proxy.storage not in self.numbers:
            self.numbers[proxy.storage] = self.storages.new()
        return self.numbers[proxy.storage]

    def run(self, communication: Communication) -> Iterator[Moment]:
        trace, storages, late = self.trace, self.storages, communication.late
        postponed: dict[int, list[str]] = {}
        for proxy in trace.inputs:
            if isinstance(proxy, TensorProxy):
                self._hold(proxy, -1)
        yield Moment(self.title, -1, None, storages)
        self._release(trace.deletions.get(-1, ()))
        for index, op in enumerate(trace.symbols):
            self._hold_results(op, index, communication.same)
            yield Moment(self.title, index, op, storages)
            deleted = (*trace.deletions.get(index, ()), *postponed.pop(index, ()))
            for name in deleted:
                if late.get(name, index) > index:
                    postponed.setdefault(late[name], []).append(name)
            self._release([name for name in deleted if late.get(name, index) <= index])

    def _release(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.returned:
                self.storages.release(name)

    def _hold_results(self, op: BoundSymbol, index: int, same: Mapping[str, str]) -> None:
        for proxy in op.outputs():
            if isinstance(proxy, OpaqueProxy):  # a graph that autograd recorded
                self.storages.hold(self.storages.new(), Alive(proxy.name, _saved_bytes(op), self.title, index))
            elif isinstance(proxy, TensorProxy):
                source = same.get(proxy.name)
                if source is not None:
                    (argument,) = {p.name: p for p in op.inputs() if p.name == source}.values()
                    assert isinstance(argument, TensorProxy)
                    self.numbers[proxy.storage] = self.number(argument)
                self._hold(proxy, index)

    def _hold(self, proxy: TensorProxy, index: int) -> None:
        number = self.number(proxy)
        if number not in self.given and (self.counts_host or proxy.device.type != "cpu"):
            self.storages.hold(number, Alive(proxy.name, self.sizes[proxy.storage], self.title, index))


def _on_accelerator(trace: Trace) -> bool:
    """Whether an input is on an accelerator: a program with tensors on the CPU, too, is one for the accelerator."""
    return any(isinstance(proxy, TensorProxy) and proxy.device.type not in ("cpu", "meta") for proxy in trace.inputs)


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


@dataclass(frozen=True, slots=True)
class Peak:
    """Where programs need the most memory.

    Attributes:
        bytes: all storages that are alive there, and the inputs of the first program.
        inputs: the bytes of these inputs.
        program: the program that reaches the peak.
        index: the position of its op there; -1 for its start.
        location: the user's line there; None if it is unknown.
    """

    bytes: int
    inputs: int
    program: str
    index: int
    location: SourceLocation | None

    def storages(self, programs: Mapping[str, Trace], returned: Container[str] | None = None) -> tuple[Alive, ...]:
        """The storages that are alive there, without the inputs, the largest first. The arguments of `peak_of`."""
        for moment in moments(programs, returned=returned):
            if (moment.program, moment.index) == (self.program, self.index):
                return moment.storages.largest()
        return ()


def peak_of(programs: Mapping[str, Trace], returned: Container[str] | None = None) -> Peak:
    """The first moment at which programs need the most memory. The arguments are those of `moments`."""
    first = next(iter(programs.values()))
    without_host = _on_accelerator(first)
    tensors = [proxy for proxy in first.inputs if isinstance(proxy, TensorProxy)]
    inputs = bytes_of([proxy for proxy in tensors if not (without_host and proxy.device.type == "cpu")])
    peak = Peak(-1, inputs, "", -1, None)
    for moment in moments(programs, returned=returned):
        if inputs + moment.bytes > peak.bytes:
            location = None if moment.op is None else moment.op.location
            peak = Peak(inputs + moment.bytes, inputs, moment.program, moment.index, location)
    return peak
