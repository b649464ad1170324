"""The storages that are alive while programs run, by the lifetimes of the values that their ops define."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
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
) -> Iterator[Moment]:
    """The ops of executable programs that run one after the other, in order, after the start of each program.

    Inputs of the first program, and workspaces of ops, are not included. Results of a program are alive until a later
    one deletes them. Sizes that vary have the values of the call that was compiled.

    Args:
        communication: called with each program, and the backward programs of graphs that autograd recorded in earlier
            ones, by their names. Without it, collectives are like other ops.
    """
    storages = LiveStorages()
    derivatives: dict[str, Trace] = {}
    first = next(iter(programs.values()))
    given = storages_of(first.inputs)
    names = {proxy.name: proxy.storage for proxy in first.inputs if isinstance(proxy, TensorProxy)}
    for title, trace in programs.items():
        walk = _Walk(title, trace, storages, given, names)
        yield from walk.run(Communication() if communication is None else communication(trace, derivatives))
        derivatives |= derivatives_of(trace)
        names |= {p.name: walk.number(p) for p in iterate_proxies(trace.output) if isinstance(p, TensorProxy)}


class _Walk:
    """One program of `moments`. Programs number storages independently, so values are matched by ``names``."""

    def __init__(
        self, title: str, trace: Trace, storages: LiveStorages, given: set[int], names: Mapping[str, int]
    ) -> None:
        self.title = title
        self.trace = trace
        self.storages = storages
        self.given = given
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
        for name in trace.deletions.get(-1, ()):
            storages.release(name)
        for index, op in enumerate(trace.symbols):
            self._hold_results(op, index, communication.same)
            yield Moment(self.title, index, op, storages)
            for name in (*trace.deletions.get(index, ()), *postponed.pop(index, ())):
                until = late.get(name, index)
                if until > index:
                    postponed.setdefault(until, []).append(name)
                else:
                    storages.release(name)

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
        if number not in self.given:
            self.storages.hold(number, Alive(proxy.name, self.sizes[proxy.storage], self.title, index))


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
