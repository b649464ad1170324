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
    """The ops, with gathers as early as a memory limit allows.

    A gather moves up to the start of the program or to the wait for an earlier gather: to the first of these positions
    where it and the pending gathers have at most ``ahead`` bytes together. If all gathers have the same size, it starts
    one gather ahead. It starts further ahead of small gathers, whose layers do not compute long enough to hide it. The
    order of gathers does not change. The result depends only on the ops and the sizes of parameters, so ranks with
    batches of different shapes start collectives in the same order.

    Args:
        gathers: the ids of gathers that read only inputs of the program.
        ahead: the maximum number of bytes of whole parameters in pending gathers, without those that the program waits
            for at that position. A larger gather does not move. None: 1.25 times the bytes of the largest gather, so
            that small gathers do not delay a large one.
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
        op: the op that starts it.
        recorded: the number of other ops before it.
        wait: the position among the other ops of the first wait for it.
        bytes: the bytes of the whole parameters.
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
    """For each gather, the position among the other ops at which it starts."""
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
    """Split a gather if other gathers are between the ops that read its results.

    The first part replaces the original. Each other part, with its waits, is placed after the last gather before the
    first op that reads its results. So forward does not wait for the parameters of the last layer of a model before it
    runs the first layer, if both are in one group. The number of bytes sent is unchanged. A gather is split only if, by
    the cost model, the bytes of the part take longer than the latency of a collective. The parts depend only on the
    order of the ops and the sizes of parameters.
    """
    gathers = [index for index, op in enumerate(trace.symbols) if is_parameter_gather(op)]
    if len(gathers) < 2:
        return trace
    reads = _Reads(trace)
    parts: dict[int, list[BoundSymbol]] = {}  # by position of a gather, the ops that replace it
    moved: dict[int, list[BoundSymbol]] = defaultdict(list)  # by position of a gather, the ops after it
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
    """By name of each value, the position of the first (``choose=min``) or last (``max``) op that computes with it.

    Waits, views, copies and casts of one tensor do not compute: the ops that read their results count instead. Values
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
    """The positions at which ops read the results of gathers.

    Attributes:
        first: `read_positions` of the first reads.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._position = {id(op): index for index, op in enumerate(trace.symbols)}
        self.first = read_positions(trace, min)

    def followers(self, part: BoundSymbol) -> list[int]:
        """The positions of the waits, views, copies and casts of the results of a part of a gather, in order."""
        found: set[int] = set()
        names = [proxy.name for proxy in part.outputs()]
        while names:
            for op in self._trace.users(names.pop()):
                if hands_on(op) and self._position[id(op)] not in found:
                    found.add(self._position[id(op)])
                    names += [proxy.name for proxy in op.outputs()]
        return sorted(found)
