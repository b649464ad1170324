"""Where the all-gathers of a program start, and which of them are split: those whose parameters are read far apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace
from thunder_plugin_distributed.coalesced import (
    is_parameter_gather,
    latency_seconds,
    part_of,
    transfer_seconds,
    whole_bytes,
)
from thunder_plugin_distributed.early_reductions import hands_on
from thunder_plugin_distributed.hardware import Hardware


def with_starts(ops: Sequence[BoundSymbol], gathers: set[int], ahead: int | None) -> list[BoundSymbol]:
    """The ops with their gathers as early as a limit of memory allows.

    A gather rises to the start of the program, or to the wait for a gather before it: to the first of these places
    where it and the gathers that are not waited for there have at most ``ahead`` bytes. So it starts one gather ahead
    where all are equal, and further ahead of small ones, which do not compute long enough to cover its time. Gathers
    keep their order. All of this follows from the ops and the sizes of parameters alone: ranks whose batches have
    other shapes start collectives in the same order.

    Args:
        gathers: identities of ops that read inputs of the program alone.
        ahead: bytes of whole parameters that may be gathered and not yet waited for, besides those that the program
            waits for where a gather starts. A gather that is larger stays where it is. None: a quarter more than those
            of the largest gather, so that small ones hold no large one back.
    """
    others = [op for op in ops if id(op) not in gathers]
    starts = _starts(ops, others, gathers)
    rising = list(zip(_places(starts, ahead), starts, strict=True))[::-1]
    placed: list[BoundSymbol] = []
    for index, op in enumerate(others):
        while rising and rising[-1][0] <= index:
            placed.append(rising.pop()[1].op)
        placed.append(op)
    return [*placed, *[start.op for _, start in reversed(rising)]]


@dataclass(frozen=True)
class _Start:
    """A gather.

    Attributes:
        op: that starts it.
        recorded: how many of the other ops stand before it.
        wait: the position among them of the first that waits for it.
        bytes: of the whole parameters.
    """

    op: BoundSymbol
    recorded: int
    wait: int
    bytes: int


def _starts(ops: Sequence[BoundSymbol], others: Sequence[BoundSymbol], gathers: set[int]) -> list[_Start]:
    readers: dict[str, int] = {}
    for index, op in enumerate(others):
        for proxy in op.inputs():
            readers.setdefault(proxy.name, index)
    starts: list[_Start] = []
    before = 0
    for op in ops:
        if id(op) in gathers:
            wait = min([readers.get(proxy.name, len(others)) for proxy in op.outputs()], default=before)
            starts.append(_Start(op, before, wait, whole_bytes(op)))
        else:
            before += 1
    return starts


def _places(starts: Sequence[_Start], ahead: int | None) -> list[int]:
    """For each gather the position among the other ops of the one that it starts before."""
    limit = max([start.bytes for start in starts], default=0) * 5 // 4 if ahead is None else ahead
    places: list[int] = []
    for index, start in enumerate(starts):
        lowest, earlier = places[-1] if places else 0, starts[:index]
        candidates = sorted({lowest, *[other.wait for other in earlier if lowest < other.wait <= start.recorded]})
        fitting = [
            place
            for place in candidates
            if sum(other.bytes for other in earlier if other.wait > place) + start.bytes <= limit
        ]
        places.append(fitting[0] if fitting else max(lowest, start.recorded))
    return places


def gather_late(trace: Trace, hardware: Hardware) -> Trace:
    """The trace with a gather cut in parts, where other gathers stand between the ops that read what it gives.

    The first part stays where the whole stood, each other part stands behind the last gather before the first op that
    reads from it, with its waits. So forward does not wait for the last layer of a model before it runs the first,
    which is in the same group, and the bytes that are sent stay the same. A part is cut off only if its bytes take
    longer than the latency of a collective, by the cost model: where the cuts are follows from the order of the ops
    and the sizes of parameters.
    """
    gathers = [index for index, op in enumerate(trace.symbols) if is_parameter_gather(op)]
    if len(gathers) < 2:
        return trace
    reads = _Reads(trace)
    parts: dict[int, list[BoundSymbol]] = {}  # for the position of a gather what takes its place
    moved: dict[int, list[BoundSymbol]] = defaultdict(list)  # behind the gather at a position
    gone: set[int] = set()
    for index in gathers:
        first, *others = _parts(trace.symbols[index], index, gathers, reads, hardware)
        parts[index] = [first[1]]
        for position, part in others:
            followers = reads.followers(part)
            gone |= set(followers)
            moved[position] += [part, *[trace.symbols[place] for place in followers]]
    if not moved:
        return trace
    ops: list[BoundSymbol] = []
    for index, op in enumerate(trace.symbols):
        if index not in gone:
            ops += parts.get(index, [op])
        ops += moved.get(index, ())
    return trace.with_symbols(ops, "gather_late")


def _parts(
    op: BoundSymbol, index: int, gathers: Sequence[int], reads: _Reads, hardware: Hardware
) -> list[tuple[int, BoundSymbol]]:
    """The parts of a gather, each with the position of the last gather before the first op that reads from it."""
    places: dict[int, list[int]] = defaultdict(list)
    unread: list[int] = []
    for place, proxy in enumerate(op.output):
        if proxy.name in reads.first:
            before = [gather for gather in gathers if index <= gather < reads.first[proxy.name]]
            places[before[-1]].append(place)
        else:
            unread.append(place)
    parts: list[tuple[int, list[int]]] = []
    for position, chosen in sorted(places.items()):
        part = part_of(op, chosen)
        if parts and transfer_seconds(part, hardware) < latency_seconds(part, hardware):
            parts[-1][1].extend(chosen)
        else:
            parts.append((position, chosen))
    if len(parts) < 2:
        return [(index, op)]
    parts[0][1].extend(unread)  # is waited for, and freed, with the first of the others
    return [(position, part_of(op, sorted(chosen))) for position, chosen in parts]


def read_positions(trace: Trace, choose: Callable[..., int]) -> dict[str, int]:
    """For each value the position of an op that computes with it: of the first if ``choose`` is `min`, last if `max`.

    Waits, and ops that lay out or cast one tensor, do not compute: what counts is where their results are read. Values
    that no op computes with are left out.
    """
    positions: dict[str, int] = {}
    for index in reversed(range(len(trace.symbols))):
        op = trace.symbols[index]
        reads = [index]
        if hands_on(op):
            reads = [positions[result.name] for result in op.outputs() if result.name in positions]
        for proxy in op.inputs() if reads else ():
            positions[proxy.name] = choose([*reads, positions.get(proxy.name, reads[0])])
    return positions


class _Reads:
    """Where ops read the results of gathers.

    Attributes:
        first: `read_positions` of the first reads.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._position = {id(op): index for index, op in enumerate(trace.symbols)}
        self.first = read_positions(trace, min)

    def followers(self, part: BoundSymbol) -> list[int]:
        """The positions of the ops that hand on what a part of a gather gives, in order."""
        found: set[int] = set()
        names = [proxy.name for proxy in part.outputs()]
        while names:
            for op in self._trace.users(names.pop()):
                if hands_on(op) and self._position[id(op)] not in found:
                    found.add(self._position[id(op)])
                    names += [proxy.name for proxy in op.outputs()]
        return sorted(found)
