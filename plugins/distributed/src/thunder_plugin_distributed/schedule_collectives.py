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
from thunder_plugin_distributed.early_reductions import MOVABLE, reduce_early
from thunder_plugin_distributed.gathers import gather_late, with_starts
from thunder_plugin_distributed.hardware import Hardware, hardware_of


@dataclass(frozen=True)
class ScheduleCollectives(Transform):
    """A program starts to gather parameters before it reads them, and waits for what arrives where it is read.

    Before executors claim lines, gradients of a group that are computed far apart get reductions of their own
    (`reduce_early`), and parameters of a group that are read far apart gathers of their own (`gather_late`).

    Waits go down to the first line that reads what arrived. The elementwise lines after a wait, as the cast of a
    reduced gradient, go with it if nothing else depends on them. A gather, which reads inputs of the program alone,
    goes up to where gathers before it are waited for, within a limit of memory (`with_starts`); other collectives stay
    where they are. What they give is waited for at the latest before the next of them starts: until then PyTorch keeps
    what they read, which is the whole of the gradients of a group of parameters, in the dtype that they are reduced in.
    What nobody reads is waited for at the end.

    Attributes:
        hardware: the machine of the cost model, a name or its rates.
        ahead: bytes of whole parameters that may be gathered and not yet waited for; None for a quarter more than those
            of the largest gather.
    """

    name: ClassVar[str] = "schedule_collectives"
    place: ClassVar[Place] = Place.CLAIMED
    also: ClassVar[tuple[Place, ...]] = (Place.AFTER_DIFFERENTIATION, Place.PARTITIONED)

    hardware: str | Hardware = "h100"
    ahead: int | None = None

    def applies(self, context: TransformContext) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        if not any(Tag.COLLECTIVE in line.symbol.tags for line in trace.symbols):
            return trace
        if context.place is Place.AFTER_DIFFERENTIATION:
            return without_collectors(trace) if context.phase is Phase.JOINT else trace
        if context.place is Place.PARTITIONED:
            return gather_late(reduce_early(trace), hardware_of(self.hardware))
        gathers = gathers_of_inputs(trace)
        lines = _all_awaited(trace, _late(trace, gathers))
        return trace.with_symbols(with_starts(lines, gathers, self.ahead), self.name)


def _all_awaited(trace: Trace, lines: list[BoundSymbol]) -> list[BoundSymbol]:
    """The lines, and waits for what no line reads of what a collective gives, behind the first for any of it.

    PyTorch keeps what was not waited for.
    """
    builder, symbol = Builder.of(trace), registry.symbol_of(wait)
    unread: dict[str, list[BoundSymbol]] = {}
    for line in trace.symbols:
        if Tag.COLLECTIVE not in line.symbol.tags:
            continue
        waits: list[BoundSymbol] = []
        for proxy in line.outputs():
            if isinstance(proxy, TensorProxy) and not trace.users(proxy.name) and not trace.is_returned(proxy.name):
                result = replace(proxy, name=builder.name(proxy.name), storage=builder.new_storage())
                effects = Effects(channels=(WAITS,))
                waits.append(BoundSymbol(symbol, (proxy,), {}, result, effects, line.context, line.location))
        unread |= {proxy.name: waits for proxy in line.outputs()}
    found: list[BoundSymbol] = []
    for line in lines:
        found.append(line)
        waits = unread.get(line.args[0].name, []) if Tag.WAIT in line.symbol.tags else []
        found += waits
        waits.clear()
    return [*found, *{id(wait): wait for waits in unread.values() for wait in waits}.values()]


def _late(trace: Trace, gathers: set[int]) -> list[BoundSymbol]:
    """The lines with waits, and what goes with them, as late as they can be."""
    waiting: list[BoundSymbol] = []
    lines: list[BoundSymbol] = []
    pending: set[str] = set()
    reduced: set[str] = set()
    tails = _tails(trace)
    for index, line in enumerate(trace.symbols):
        if Tag.WAIT in line.symbol.tags or index in tails:
            waiting.append(line)
            pending.update(proxy.name for proxy in line.outputs())
            continue
        needed = {proxy.name for proxy in line.inputs()} & pending
        if Tag.COLLECTIVE in line.symbol.tags and id(line) not in gathers:
            needed |= {
                wait.output.name for wait in waiting if Tag.WAIT in wait.symbol.tags and wait.args[0].name in reduced
            }
            reduced = {proxy.name for proxy in line.outputs()}
        if needed:
            lines += _released(waiting, needed, pending)
        lines.append(line)
    return [*lines, *waiting]


def _released(waiting: list[BoundSymbol], needed: set[str], pending: set[str]) -> list[BoundSymbol]:
    """The waiting lines that compute the values ``needed``, in order; they do not wait any more."""
    taken: list[BoundSymbol] = []
    for line in reversed(list(waiting)):
        if any(proxy.name in needed for proxy in line.outputs()):
            needed |= {proxy.name for proxy in line.inputs()} & pending
            taken.append(line)
            waiting.remove(line)
            pending.difference_update(proxy.name for proxy in line.outputs())
    return taken[::-1]


def _tails(trace: Trace) -> set[int]:
    """The lines after waits that may wait as well: all that depends on them is elementwise."""
    from_waits: set[str] = set()
    candidates: list[int] = []
    for index, line in enumerate(trace.symbols):
        if Tag.WAIT in line.symbol.tags:
            from_waits.update(proxy.name for proxy in line.outputs())
        elif not from_waits.isdisjoint(proxy.name for proxy in line.inputs()):
            from_waits.update(proxy.name for proxy in line.outputs())
            candidates.append(index)
    found: set[int] = set()
    blocked: set[str] = set()
    for index in reversed(candidates):
        line = trace.symbols[index]
        simple = line.effects.pure and not MOVABLE.isdisjoint(line.symbol.tags)
        if simple and blocked.isdisjoint(proxy.name for proxy in line.outputs()):
            found.add(index)
        else:
            blocked.update(proxy.name for proxy in line.inputs())
    return found
