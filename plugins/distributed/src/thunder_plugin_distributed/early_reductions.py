"""Split the reduction of a group's gradients when they are computed far apart."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.symbols.registry import registry
from thunder_plugin_distributed.coalesced import part_of
from thunder_plugin_distributed.collectives import all_reduce, reduce_scatter

Position = tuple[int, ...]
"""The position of an op, compared element by element: ``(5, 0)`` is directly after ``(5,)`` and before ``(6,)``."""

MOVABLE: Final = frozenset({Tag.ELEMENTWISE, Tag.CAST, Tag.SHAPE, Tag.COPY})
"""Tags of ops that may move with a collective: before it, or after its wait."""

_REDUCTIONS: Final = frozenset({registry.symbol_of(reduce_scatter), registry.symbol_of(all_reduce)})


def hands_on(op: BoundSymbol) -> bool:
    """Whether an op waits for a tensor, or is a view, copy, cast or elementwise op of one tensor."""
    if Tag.WAIT in op.symbol.tags:
        return True
    tensors = {proxy.name for proxy in op.inputs() if isinstance(proxy, TensorProxy)}
    return op.effects.pure and not MOVABLE.isdisjoint(op.symbol.tags) and len(tensors) == 1


def reduce_early(trace: Trace) -> Trace:
    """Split a reduction if other reductions start between the computations of its gradients.

    Each part is placed directly after the last op that computes its gradients; the last part replaces the original. So
    the gradient of the last layer of a model is reduced at the beginning of backward, even if the first layer is in the
    same group. Less communication remains at the end of backward, and the gradients of both layers are not in memory
    at once. The number of bytes sent is unchanged, and all ranks, which have the same program, send in the same order.
    """
    if not any(op.symbol in _REDUCTIONS for op in trace.symbols):
        return trace
    return trace.with_symbols(_Cut(trace).ops(), "reduce_early")


class _Cut:
    """The ops of a trace, each with its new position."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.placed: list[tuple[Position, BoundSymbol]] = []
        self.producers: dict[str, int] = {}  # of values, the index in ``placed``
        self.reductions: list[Position] = []
        self.early: set[str] = set()  # results of parts that moved
        self.serial = 0

    def ops(self) -> list[BoundSymbol]:
        """All ops in their new order."""
        for index, op in enumerate(self.trace.symbols):
            if op.symbol in _REDUCTIONS:
                self._reduce(op, (index,))
            elif Tag.WAIT in op.symbol.tags and not self.early.isdisjoint(proxy.name for proxy in op.inputs()):
                self._place(op, self._behind(op))
            else:
                self._place(op, (index,))
        return [op for _, op in sorted(self.placed, key=lambda placed: placed[0])]

    def _reduce(self, op: BoundSymbol, position: Position) -> None:
        """Place the parts of a reduction, the earliest first: gradients that are ready before the same reductions."""
        values = op.args[0]
        casts = [self._casts(value.name) for value in values]
        parts: dict[int, list[int]] = defaultdict(list)
        for place, value in enumerate(values):
            ready = self._behind(self.placed[casts[place][0]][1]) if casts[place] else self._position(value.name)
            parts[sum(ready < reduction for reduction in self.reductions)].append(place)
        last = min(parts, default=0)
        for count, places in sorted(parts.items(), reverse=True):
            part = op if len(parts) == 1 else part_of(op, places)
            where = position
            if count != last:
                for cast in [cast for place in places for cast in casts[place]]:
                    self.placed[cast] = (self._behind(self.placed[cast][1]), self.placed[cast][1])
                where = self._behind(part)
                self.early |= {proxy.name for proxy in part.outputs()}
            self.reductions.append(where)
            self._place(part, where)

    def _casts(self, name: str) -> list[int]:
        """The chain of single-tensor ops, first to last, whose result only a reduction reads."""
        casts: list[int] = []
        while name in self.producers and self.trace.use_count(name) == 1:
            op = self.placed[self.producers[name]][1]
            if Tag.WAIT in op.symbol.tags or not hands_on(op):
                break
            casts.append(self.producers[name])
            name = tensor_inputs_of(op)[0].name
        return casts[::-1]

    def _position(self, name: str) -> Position:
        return self.placed[self.producers[name]][0] if name in self.producers else (-1,)

    def _behind(self, op: BoundSymbol) -> Position:
        """A position directly after the last op that computes an argument of ``op``."""
        self.serial += 1
        return (*max(self._position(proxy.name) for proxy in op.inputs()), self.serial)

    def _place(self, op: BoundSymbol, position: Position) -> None:
        self.producers |= {proxy.name: len(self.placed) for proxy in op.outputs()}
        self.placed.append((position, op))
