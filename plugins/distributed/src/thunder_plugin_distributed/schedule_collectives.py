"""Schedule collectives to overlap with computation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.effects import WAITS, Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.symbols.registry import registry
from thunder_plugin_distributed.coalesced import gathers_of_inputs, without_collectors
from thunder_plugin_distributed.collectives import wait
from thunder_plugin_distributed.compute_behind import compute_behind
from thunder_plugin_distributed.early_reductions import MOVABLE, reduce_early
from thunder_plugin_distributed.gathers import gather_late, with_starts
from thunder_plugin_distributed.hardware import Hardware, hardware_of


@dataclass(frozen=True)
class ScheduleCollectives(Transform):
    """Starts gathers of parameters before the parameters are read, and waits for collectives as late as possible.

    Before executors claim ops, the reduction of a group is split if its gradients are computed far apart
    (`reduce_early`), and the gather of a group if its parameters are read far apart (`gather_late`).

    Each wait moves down to the first op that reads its result. Elementwise ops after a wait, such as the cast of a
    reduced gradient, move with it if no other op depends on them. A gather, which reads only inputs of the program,
    moves up to the wait for an earlier gather, within a memory limit (`with_starts`). Other collectives move only where
    nothing would be computed while they run (`compute_behind`).
    Each of them is waited for before the next one starts, because PyTorch holds their arguments until then: all
    gradients of a group of parameters, in the dtype of the reduction. Results that no op reads are waited for at the
    end.

    Attributes:
        hardware: the machine of the cost model: its name or its rates.
        ahead: the maximum number of bytes of whole parameters in gathers that have started and are not yet waited for.
            None: 1.25 times the bytes of the largest gather.
    """

    name: ClassVar[str] = "schedule_collectives"
    place: ClassVar[Place] = Place.CLAIMED
    verified: ClassVar[bool] = False
    also: ClassVar[tuple[Place, ...]] = (Place.AFTER_DIFFERENTIATION, Place.PARTITIONED)

    hardware: str | Hardware = "h100"
    ahead: int | None = None

    def applies(self, context: TransformContext) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        if not any(Tag.COLLECTIVE in op.symbol.tags for op in trace.symbols):
            return trace
        if context.place is Place.AFTER_DIFFERENTIATION:
            return without_collectors(trace) if context.phase is Phase.JOINT else trace
        hardware = hardware_of(self.hardware)
        if context.place is Place.PARTITIONED:
            return compute_behind(gather_late(reduce_early(trace), hardware), hardware)
        gathers = gathers_of_inputs(trace)
        ops = _all_awaited(trace, _late(compute_behind(trace, hardware), gathers))
        return trace.with_symbols(with_starts(ops, gathers, self.ahead), self.name)


def _all_awaited(trace: Trace, ops: list[BoundSymbol]) -> list[BoundSymbol]:
    """The ops, with waits for results of collectives that no op reads, after the first wait for the same collective.

    PyTorch does not free results that are never waited for.
    """
    builder, symbol = Builder.of(trace), registry.symbol_of(wait)
    unread: dict[str, list[BoundSymbol]] = {}
    for op in trace.symbols:
        if Tag.COLLECTIVE not in op.symbol.tags:
            continue
        waits: list[BoundSymbol] = []
        for proxy in op.outputs():
            if isinstance(proxy, TensorProxy) and not trace.users(proxy.name) and not trace.is_returned(proxy.name):
                result = replace(proxy, name=builder.name(proxy.name), storage=builder.new_storage())
                effects = Effects(channels=(WAITS,))
                waits.append(BoundSymbol(symbol, (proxy,), {}, result, effects, op.context, op.location))
        unread |= {proxy.name: waits for proxy in op.outputs()}
    found: list[BoundSymbol] = []
    for op in ops:
        found.append(op)
        waits = unread.get(op.args[0].name, []) if Tag.WAIT in op.symbol.tags else []
        found += waits
        waits.clear()
    return [*found, *{id(wait): wait for waits in unread.values() for wait in waits}.values()]


def _late(trace: Trace, gathers: set[int]) -> list[BoundSymbol]:
    """The ops, with waits and the ops that move with them as late as possible."""
    waiting: list[BoundSymbol] = []
    ops: list[BoundSymbol] = []
    pending: set[str] = set()
    reduced: set[str] = set()
    tails = _tails(trace)
    for index, op in enumerate(trace.symbols):
        if Tag.WAIT in op.symbol.tags or index in tails:
            waiting.append(op)
            pending.update(proxy.name for proxy in op.outputs())
            continue
        needed = {proxy.name for proxy in op.inputs()} & pending
        if Tag.COLLECTIVE in op.symbol.tags and id(op) not in gathers:
            needed |= {
                wait.output.name for wait in waiting if Tag.WAIT in wait.symbol.tags and wait.args[0].name in reduced
            }
            reduced = {proxy.name for proxy in op.outputs()}
        if needed:
            ops += _released(waiting, needed, pending)
        ops.append(op)
    return [*ops, *waiting]


def _released(waiting: list[BoundSymbol], needed: set[str], pending: set[str]) -> list[BoundSymbol]:
    """Remove the ops that compute the values ``needed`` from ``waiting``; return them in order."""
    taken: list[BoundSymbol] = []
    for op in reversed(list(waiting)):
        if any(proxy.name in needed for proxy in op.outputs()):
            needed |= {proxy.name for proxy in op.inputs()} & pending
            taken.append(op)
            waiting.remove(op)
            pending.difference_update(proxy.name for proxy in op.outputs())
    return taken[::-1]


def _tails(trace: Trace) -> set[int]:
    """The positions of ops after waits that may move with them: all ops that depend on them are elementwise."""
    from_waits: set[str] = set()
    candidates: list[int] = []
    for index, op in enumerate(trace.symbols):
        if Tag.WAIT in op.symbol.tags:
            from_waits.update(proxy.name for proxy in op.outputs())
        elif not from_waits.isdisjoint(proxy.name for proxy in op.inputs()):
            from_waits.update(proxy.name for proxy in op.outputs())
            candidates.append(index)
    found: set[int] = set()
    blocked: set[str] = set()
    for index in reversed(candidates):
        op = trace.symbols[index]
        simple = op.effects.pure and not MOVABLE.isdisjoint(op.symbol.tags)
        if simple and blocked.isdisjoint(proxy.name for proxy in op.outputs()):
            found.add(index)
        else:
            blocked.update(proxy.name for proxy in op.inputs())
    return found
