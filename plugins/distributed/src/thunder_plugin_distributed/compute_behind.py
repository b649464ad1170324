"""Compute while a collective runs what it does not depend on."""

from __future__ import annotations

from collections.abc import Mapping

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_plugin_distributed.coalesced import gathers_of_inputs, latency_seconds, transfer_seconds
from thunder_plugin_distributed.early_reductions import hands_on
from thunder_plugin_distributed.gathers import read_positions
from thunder_plugin_distributed.hardware import Hardware
from thunder_plugin_distributed.simulation.timeline import compute_seconds


def compute_behind(trace: Trace, hardware: Hardware) -> Trace:
    """Start a collective that the program waits for at once before ops that it does not read.

    These are the last ones before it, as many as take as long as the collective by the cost model, and none before an
    op with an effect. In backward of a column-wise parallel layer, the gradient of the weight is computed while that of
    the input is reduced.
    Gathers of inputs of the program do not read what is computed, and stay where they are.
    """
    placed: list[BoundSymbol] = []
    gathers, first_read = gathers_of_inputs(trace), read_positions(trace, min)
    for index, op in enumerate(trace.symbols):
        if Tag.COLLECTIVE in op.symbol.tags and id(op) not in gathers and _is_exposed(trace, index, first_read):
            placed = _started_early(placed, op, hardware)
        else:
            placed.append(op)
    return trace.with_symbols(placed, "compute_behind")


def _is_exposed(trace: Trace, index: int, first_read: Mapping[str, int]) -> bool:
    """Whether only waits, views, copies and casts are between a collective and the first op that reads its results."""
    reads = [first_read[proxy.name] for proxy in trace.symbols[index].outputs() if proxy.name in first_read]
    return bool(reads) and all(hands_on(op) or op.is_view() for op in trace.symbols[index + 1 : min(reads)])


def _started_early(ops: list[BoundSymbol], start: BoundSymbol, hardware: Hardware) -> list[BoundSymbol]:
    """The ops before a collective and the collective, behind which some of them move."""
    remaining = transfer_seconds(start, hardware) + latency_seconds(start, hardware)
    read = {proxy.name for proxy in start.inputs()}
    first, moved = len(ops), set[int]()
    while first and ops[first - 1].effects.pure and remaining > 0:
        first -= 1
        op = ops[first]
        if read.isdisjoint(proxy.name for proxy in op.outputs()):
            moved.add(first)
            remaining -= compute_seconds(op, hardware)
        else:
            read.update(proxy.name for proxy in op.inputs())
    computed: set[str] = set()
    behind: list[BoundSymbol] = []
    before = ops[:first]
    for index, op in enumerate(ops[first:], first):
        # a cast alone, for example, is fused with other ops better
        if index in moved and not (hands_on(op) and computed.isdisjoint(proxy.name for proxy in op.inputs())):
            behind.append(op)
            computed.update(proxy.name for proxy in op.outputs())
        else:
            before.append(op)
    return [*before, start, *behind]
