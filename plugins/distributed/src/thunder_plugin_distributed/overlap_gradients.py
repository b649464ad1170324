"""Gradients of DistributedDataParallel are averaged while backward runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.effects import WAITS, Effects
from thunder_core.ir.proxy import OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.symbols.registry import registry
from thunder_plugin_distributed.collectives import wait
from thunder_plugin_distributed.data_parallel_gradients import (
    CALL_HOOK,
    CHECK,
    FILLED,
    HOOK_RESULT,
    SUMMED,
    TAKEN,
    USED_HERE,
    absent,
    average_gradients,
)

_EXTERNAL: Final = Effects(external=True)
_WAIT: Final = registry.symbol_of(wait)


@dataclass(frozen=True)
class OverlapGradients(Transform):
    """Backward starts to reduce each bucket of gradients as soon as the last of them is computed.

    Buckets are reduced in the order that the module gives them, the same on all ranks, and waited for after all other
    lines of backward. Without it they are reduced one after the other at the end of backward.
    """

    name: ClassVar[str] = "overlap_gradients"
    place: ClassVar[Place] = Place.PARTITIONED

    def applies(self, context: TransformContext) -> bool:
        return context.phase is Phase.BACKWARD

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        calls = [line for line in trace.symbols if _averages(line)]
        if not calls:
            return trace
        builder = Builder.of(trace)
        silent: set[str] = set()
        lines = [line for line in trace.symbols if not _averages(line)]
        for call in calls:
            average = _Average(call, builder)
            lines = [*_placed(lines, average.starts()), *average.ends()]
            silent |= average.silent
        output = tuple([None if item is None or item.name in silent else item for item in trace.output])
        return replace(trace.with_symbols(lines, self.name), output=output)


def _averages(line: BoundSymbol) -> bool:
    return bool(line.args) and line.args[0] is average_gradients and bool(line.outputs())


def _placed(lines: list[BoundSymbol], starts: list[tuple[BoundSymbol, ...]]) -> Iterator[BoundSymbol]:
    """The lines with the groups of lines ``starts``, in order, each right behind the last line that it reads from."""
    position = {proxy.name: index for index, line in enumerate(lines) for proxy in line.outputs()}
    earliest = 0
    groups: dict[int, list[BoundSymbol]] = {}
    for group in starts:
        needed = [position[proxy.name] + 1 for line in group for proxy in line.inputs() if proxy.name in position]
        earliest = max([earliest, *needed])
        groups.setdefault(earliest, []).extend(group)
    for index, line in enumerate(lines):
        yield from groups.get(index, ())
        yield line
    yield from groups.get(len(lines), ())


class _Average:
    """The lines in the place of one call of `average_gradients`.

    Attributes:
        silent: results of the call that autograd gets no gradient for, as there is none in this backward.
    """

    def __init__(self, call: BoundSymbol, builder: Builder) -> None:
        self._call = call
        self._builder = builder
        _, self._gradients, self._metadata, self._reached, self._module, self._buckets, *options = call.args
        self._given = tuple([gradient is not None for gradient in self._gradients])
        self._group, size, self._finds_unused, self._hooked = options
        self._factor = None if self._hooked else 1 / size
        pairs = zip(call.output, self._given, strict=True)
        self.silent = {result.name for result, given in pairs if result is not None and not given}
        self._pending: list[Any] = []
        self._flat: list[TensorProxy] = []
        self._used: Any = None

    def starts(self) -> list[tuple[BoundSymbol, ...]]:
        """For each bucket the lines that start to reduce it. Nothing is sent before the first is."""
        missing = absent(self._gradients, self._buckets)
        checked = self._line(CHECK, (self._module, self._buckets, missing, self._finds_unused), None)
        groups = [self._start(index, places) for index, places in enumerate(self._buckets)]
        groups[0] = (checked, *groups[0])
        if self._finds_unused:
            groups.append(self._start_used())
        return groups

    def ends(self) -> Iterator[BoundSymbol]:
        """The lines that wait, and give the averages."""
        used = None
        if self._finds_unused:
            used = self._like(self._used, "used_by_ranks")
            yield self._line(_WAIT, (self._used,), used)
        for places, pending, flat in zip(self._buckets, self._pending, self._flat, strict=True):
            reduced = self._like(flat, "averages")
            if self._hooked:
                yield self._line(HOOK_RESULT, (pending,), reduced)
            else:
                yield self._line(_WAIT, (pending,), reduced)
            given = tuple([self._given[place] for place in places])
            results = tuple([self._call.output[place] if self._given[place] else None for place in places])
            yield self._line(TAKEN, (self._module, places, reduced, given, used), results)

    def _start(self, index: int, places: tuple[int, ...]) -> tuple[BoundSymbol, ...]:
        gradients = tuple([self._gradients[place] for place in places])
        flat = self._bucket(places)
        self._flat.append(flat)
        fill = self._line(FILLED, (self._module, places, gradients, self._factor), flat)
        if self._hooked:
            self._pending.append(OpaqueProxy(self._builder.name("future"), "Future"))
            arguments = (self._module, places, flat, index, index == len(self._buckets) - 1)
            return fill, self._line(CALL_HOOK, arguments, self._pending[-1])
        self._pending.append(self._like(flat, "reduced"))
        return fill, self._line(SUMMED, (flat, self._group), self._pending[-1])

    def _start_used(self) -> tuple[BoundSymbol, ...]:
        here = self._tensor("used", len(self._reached), torch.int32, self._flat[0].device)
        self._used = self._like(here, "used_reduced")
        return (
            self._line(USED_HERE, (self._module, self._reached, self._given), here),
            self._line(SUMMED, (here, self._group), self._used),
        )

    def _bucket(self, places: tuple[int, ...]) -> TensorProxy:
        _, dtype, device, _ = self._metadata[places[0]]
        length = sum(prod(self._metadata[place][0]) for place in places)
        return self._tensor("gradients", length, dtype, device)

    def _tensor(self, name: str, length: int, dtype: torch.dtype, device: torch.device) -> TensorProxy:
        return TensorProxy(self._builder.name(name), (length,), (1,), dtype, device, False, self._builder.new_storage())

    def _like(self, proxy: TensorProxy, name: str) -> TensorProxy:
        return self._tensor(name, int(proxy.shape[0]), proxy.dtype, proxy.device)

    def _line(self, symbol: Symbol, args: tuple[Any, ...], output: Any) -> BoundSymbol:
        effects = _EXTERNAL
        if symbol is SUMMED:
            effects = Effects(channels=(self._group,))
        elif symbol is _WAIT:
            effects = Effects(channels=(WAITS,))
        return BoundSymbol(symbol, args, {}, output, effects, self._call.context, self._call.location)
