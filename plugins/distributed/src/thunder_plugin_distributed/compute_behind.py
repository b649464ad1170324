"""Compute while a collective runs what it does not depend on."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_plugin_distributed.coalesced import gathers_of_inputs, latency_seconds, transfer_seconds
from thunder_plugin_distributed.compute_time import compute_seconds
from thunder_plugin_distributed.early_reductions import hands_on
from thunder_plugin_distributed.gathers import read_positions
from thunder_plugin_distributed.hardware import Hardware


def compute_behind(trace: Trace, hardware: Hardware) -> Trace:
    """Start a collective that the program waits for at once before ops that it does not read.

    These are the last ones before it, as many as take as long as the collective by the cost model, and none before an
    op with an effect. In backward of a column-wise parallel layer, the gradient of the weight is computed while that of
    the input is reduced.

    What ops move may depend on the sizes of a batch, which differ between ranks; the order of collectives must not. So
    ops that read gathered parameters stay, since waits for gathers move with them, and the start of the next gather
    with the wait. Gathers of inputs of the program read nothing that is computed, and stay where they are.
    """
    gathers, first_read = gathers_of_inputs(trace), read_positions(trace, min)
    gathered: set[str] = set()
    placed: list[BoundSymbol] = []
    for index, op in enumerate(trace.symbols):
        if id(op) in gathers or (hands_on(op) and not gathered.isdisjoint(proxy.name for proxy in op.inputs())):
            gathered.update(proxy.name for proxy in op.outputs())
        if Tag.COLLECTIVE in op.symbol.tags and id(op) not in gathers and _is_exposed(trace, index, first_read):
            first = _start_of_window(placed)
            placed[first:] = _started_early(placed[first:], op, hardware, gathered)
        else:
            placed.append(op)
    return trace.with_symbols(placed, "compute_behind")


def _is_exposed(trace: Trace, index: int, first_read: Mapping[str, int]) -> bool:
    """Whether only waits, views, copies, casts and elementwise ops of one tensor are between a collective and the first
    other op that reads its results.
    """
    reads = [first_read[proxy.name] for proxy in trace.symbols[index].outputs() if proxy.name in first_read]
    return bool(reads) and all(hands_on(op) or op.is_view() for op in trace.symbols[index + 1 : min(reads)])


def _start_of_window(ops: Sequence[BoundSymbol]) -> int:
    """The position after the last op with an effect.

    The end of ``ops`` if that op starts a collective: the ops after it are computed while that collective runs.
    """
    first = len(ops)
    while first and ops[first - 1].effects.pure:
        first -= 1
    return len(ops) if first and Tag.COLLECTIVE in ops[first - 1].symbol.tags else first


def _started_early(
    window: Sequence[BoundSymbol], start: BoundSymbol, hardware: Hardware, gathered: Container[str]
) -> list[BoundSymbol]:
    """The ops of a window and the collective after it, behind which some of them move."""
    read = {proxy.name for proxy in start.inputs()}
    kept = set[int]()
    for index in range(len(window) - 1, -1, -1):
        names = [proxy.name for proxy in window[index].inputs()]
        if any(proxy.name in read for proxy in window[index].outputs()) or any(name in gathered for name in names):
            kept.add(index)
            read.update(names)
    movable, computed = list[int](), set[str]()
    for index, op in enumerate(window):
        # a cast alone, for example, is fused with other ops better
        if index not in kept and not (hands_on(op) and computed.isdisjoint(proxy.name for proxy in op.inputs())):
            movable.append(index)
            computed.update(proxy.name for proxy in op.outputs())
    remaining = transfer_seconds(start, hardware) + latency_seconds(start, hardware)
    behind = set[int]()
    while movable and remaining > 0:
        last = movable.pop()
        behind.add(last)
        remaining -= compute_seconds(window[last], hardware)
    before = [op for index, op in enumerate(window) if index not in behind]
    return [*before, start, *[op for index, op in enumerate(window) if index in behind]]
