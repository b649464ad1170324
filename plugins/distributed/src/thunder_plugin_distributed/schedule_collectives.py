"""Communication while a program computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Place, Transform, TransformContext

_MOVABLE = frozenset({Tag.ELEMENTWISE, Tag.CAST, Tag.SHAPE, Tag.COPY})


@dataclass(frozen=True)
class ScheduleCollectives(Transform):
    """A program waits for what a collective gives only where it is read, and for gradients when it has all others.

    The elementwise lines that read what arrived, as the cast of a reduced gradient, go with the wait if all that
    depends on it is such lines. Collectives stay where they are, so that all ranks start them in the same order.
    """

    name: ClassVar[str] = "schedule_collectives"
    place: ClassVar[Place] = Place.CLAIMED

    def applies(self, context: TransformContext) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        if not any(Tag.WAIT in line.symbol.tags for line in trace.symbols):
            return trace
        return trace.with_symbols(_scheduled(trace), self.name)


def _scheduled(trace: Trace) -> list[BoundSymbol]:
    waiting: list[BoundSymbol] = []
    lines: list[BoundSymbol] = []
    pending: set[str] = set()
    tails = _tails(trace)
    for index, line in enumerate(trace.symbols):
        if Tag.WAIT in line.symbol.tags or index in tails:
            waiting.append(line)
            pending.update(proxy.name for proxy in line.outputs())
            continue
        needed = {proxy.name for proxy in line.inputs()} & pending
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
        simple = line.effects.pure and not _MOVABLE.isdisjoint(line.symbol.tags)
        if simple and blocked.isdisjoint(proxy.name for proxy in line.outputs()):
            found.add(index)
        else:
            blocked.update(proxy.name for proxy in line.inputs())
    return found
