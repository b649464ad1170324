"""Average gradients of DistributedDataParallel while backward runs."""

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
from thunder_plugin_distributed.data_parallel_gradients import (
    FILLED,
    SPARSE_AVERAGE,
    SUMMED,
    TAKEN,
    USED_HERE,
    WAIT,
    Averaging,
    average_gradients,
)
from thunder_plugin_distributed.data_parallel_hooks import CALL_HOOK, HOOK_RESULT

_EXTERNAL: Final = Effects(external=True)


@dataclass(frozen=True)
class OverlapGradients(Transform):
    """Starts the reduction of each bucket of gradients as soon as its last gradient is computed.

    Buckets are reduced in the order of the module, the same on all ranks, and waited for after all other ops of
    backward. Without this transform they are reduced one after the other at the end of backward.
    """

    name: ClassVar[str] = "overlap_gradients"
    place: ClassVar[Place] = Place.PARTITIONED
    verified: ClassVar[bool] = False

    def applies(self, context: TransformContext) -> bool:
        return context.phase is Phase.BACKWARD

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        calls = [op for op in trace.symbols if _averages(op)]
        if not calls:
            return trace
        builder = Builder.of(trace)
        silent: set[str] = set()
        ops = [op for op in trace.symbols if not _averages(op)]
        for call in calls:
            average = _Ops(call, builder)
            ops = [*_placed(ops, average.starts()), *average.ends()]
            silent |= average.silent
        output = tuple([None if item is None or item.name in silent else item for item in trace.output])
        return replace(trace.with_symbols(ops, self.name), output=output)


def _averages(op: BoundSymbol) -> bool:
    return bool(op.args) and op.args[0] is average_gradients and bool(op.outputs())


def _placed(ops: list[BoundSymbol], starts: list[tuple[BoundSymbol, ...]]) -> Iterator[BoundSymbol]:
    """The ops with the groups of ops ``starts``, in order, each directly after the last op whose results it reads."""
    position = {proxy.name: index for index, op in enumerate(ops) for proxy in op.outputs()}
    earliest = 0
    groups: dict[int, list[BoundSymbol]] = {}
    for group in starts:
        needed = [position[proxy.name] + 1 for op in group for proxy in op.inputs() if proxy.name in position]
        earliest = max([earliest, *needed])
        groups.setdefault(earliest, []).extend(group)
    for index, op in enumerate(ops):
        yield from groups.get(index, ())
        yield op
    yield from groups.get(len(ops), ())


def _effects(symbol: Symbol, args: tuple[Any, ...]) -> Effects:
    if symbol is SUMMED:
        return Effects(channels=(args[1],))
    if symbol is SPARSE_AVERAGE:
        return Effects(external=True, channels=(args[3],))
    return Effects(channels=(WAITS,)) if symbol is WAIT else _EXTERNAL


class _Ops:
    """The ops that replace one call of `average_gradients`.

    Attributes:
        silent: results of the call for parameters without a gradient in this backward.
    """

    def __init__(self, call: BoundSymbol, builder: Builder) -> None:
        self._call = call
        self._builder = builder
        _, gradients, self._metadata, reached, module, averages = call.args
        self._given = tuple([gradient is not None for gradient in gradients])
        self._averaging = Averaging(self._write, gradients, reached, module, averages)
        pairs = zip(call.output, self._given, strict=True)
        self.silent = {result.name for result, given in pairs if result is not None and not given}
        self._ops: list[BoundSymbol] = []
        self._of_hooks: dict[str, TensorProxy] = {}

    def starts(self) -> list[tuple[BoundSymbol, ...]]:
        """For each bucket, the ops that start its reduction. The first one precedes all communication."""
        return [self._written() for _ in self._averaging.starts()]

    def ends(self) -> tuple[BoundSymbol, ...]:
        """The ops that wait for the reductions and return the averages."""
        self._averaging.averages()
        return self._written()

    def _written(self) -> tuple[BoundSymbol, ...]:
        ops, self._ops = self._ops, []
        return tuple(ops)

    def _write(self, symbol: Symbol, *args: Any) -> Any:
        output = self._result(symbol, args)
        op = BoundSymbol(symbol, args, {}, output, _effects(symbol, args), self._call.context, self._call.location)
        self._ops.append(op)
        return output

    def _result(self, symbol: Symbol, args: tuple[Any, ...]) -> Any:
        if symbol is FILLED:
            _, dtype, device, _ = self._metadata[args[1][0]]
            return self._tensor("gradients", sum(prod(self._metadata[place][0]) for place in args[1]), dtype, device)
        if symbol is USED_HERE:
            return self._tensor("used", len(args[1]), torch.int32, self._metadata[0][2])
        if symbol is SUMMED:
            return self._like(args[0], "reduced")
        if symbol is SPARSE_AVERAGE:
            return self._call.output[args[1]]
        if symbol is WAIT:
            return self._like(args[0], "averages")
        if symbol is CALL_HOOK:
            future = OpaqueProxy(self._builder.name("future"), "Future")
            self._of_hooks[future.name] = args[2]
            return future
        if symbol is HOOK_RESULT:
            return self._like(self._of_hooks[args[0].name], "averages")
        if symbol is TAKEN:
            return tuple([self._call.output[place] if self._given[place] else None for place in args[1]])
        return None

    def _tensor(self, name: str, length: int, dtype: torch.dtype, device: torch.device) -> TensorProxy:
        return TensorProxy(self._builder.name(name), (length,), (1,), dtype, device, False, self._builder.new_storage())

    def _like(self, proxy: TensorProxy, name: str) -> TensorProxy:
        return self._tensor(name, int(proxy.shape[0]), proxy.dtype, proxy.device)
