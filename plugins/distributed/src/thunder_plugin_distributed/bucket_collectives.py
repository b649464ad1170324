"""Merge small collectives into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_plugin_distributed.coalesced import (
    gathers_of_inputs,
    is_parameter_gather,
    is_scatter,
    latency_seconds,
    merge_key,
    merged,
    transfer_seconds,
    whole_bytes,
)
from thunder_plugin_distributed.early_reductions import hands_on
from thunder_plugin_distributed.hardware import Hardware, hardware_of


@dataclass(frozen=True)
class BucketCollectives(Transform):
    """Merges small collectives, whose latency exceeds the transfer time of their bytes by the cost model.

    Two consecutive gathers of parameters are merged if one of them is small, and start where the first one did. A small
    reduce-scatter is merged with the next one, if no op in between reads its results. Large reduce-scatters are not
    merged, so that large gradients are freed early. Merged collectives have the same process group, dtype and options.
    Nothing is copied, since one NCCL call sends several tensors. The result depends only on the program and the sizes
    of parameters, so all ranks merge the same collectives.

    Attributes:
        hardware: the machine of the cost model: its name or its rates.
        largest: the maximum number of bytes of the whole tensors of a merged collective.
    """

    name: ClassVar[str] = "bucket_collectives"
    place: ClassVar[Place] = Place.CLAIMED
    verified: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = ("schedule_collectives",)

    hardware: str | Hardware = "h100"
    largest: int = 32 << 20

    def applies(self, context: TransformContext) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        inputs, hardware = gathers_of_inputs(trace), hardware_of(self.hardware)
        collectives = [op for op in trace.symbols if Tag.COLLECTIVE in op.symbol.tags]
        gathers = [op for op in collectives if id(op) in inputs]
        others = [op for op in collectives if id(op) not in inputs]
        position = {id(op): index for index, op in enumerate(trace.symbols)}
        ops = list(trace.symbols)
        buckets = [
            *self._buckets(gathers, trace, position, hardware),
            *self._buckets(others, trace, position, hardware),
        ]
        moved: dict[int, list[BoundSymbol]] = {}
        gone: set[int] = set()
        for bucket in buckets:
            indices = [position[id(op)] for op in bucket]
            start = indices[0] if is_parameter_gather(bucket[0]) else indices[-1]
            followers = _followers(trace, bucket[:-1], start, position) or []
            gone |= {*indices, *followers}
            moved[start] = [merged(bucket), *[ops[index] for index in followers]]
        if not moved:
            return trace
        context.notes.append(
            f"{self.name}: {sum(map(len, buckets))} collectives of the {context.phase.value} program are {len(buckets)}"
        )
        return trace.with_symbols(_replaced(ops, moved, gone), self.name)

    def _buckets(
        self, ops: Iterable[BoundSymbol], trace: Trace, position: dict[int, int], hardware: Hardware
    ) -> Iterator[list[BoundSymbol]]:
        """The ops that are merged, in order."""
        opened: _Bucket | None = None
        for op in ops:
            added = _Bucket.of(op, hardware)
            if opened is not None and added is not None and self._join(opened, added, trace, position):
                opened = opened.joined(added)
                continue
            if opened is not None and len(opened.ops) > 1:
                yield opened.ops
            opened = added
        if opened is not None and len(opened.ops) > 1:
            yield opened.ops

    def _join(self, opened: _Bucket, added: _Bucket, trace: Trace, position: dict[int, int]) -> bool:
        if opened.key != added.key or opened.bytes + added.bytes > self.largest:
            return False
        if is_parameter_gather(added.ops[0]):
            return opened.small or added.small
        return opened.small and _followers(trace, opened.ops, position[id(added.ops[0])], position) is not None


@dataclass(frozen=True)
class _Bucket:
    """Ops that are merged, with their costs."""

    ops: list[BoundSymbol]
    key: Any
    bytes: int
    transfer: float
    latency: float

    @staticmethod
    def of(op: BoundSymbol, hardware: Hardware) -> _Bucket | None:
        """None for a collective that is never merged."""
        if not is_parameter_gather(op) and not is_scatter(op):
            return None
        costs = transfer_seconds(op, hardware), latency_seconds(op, hardware)
        return _Bucket([op], merge_key(op), whole_bytes(op), *costs)

    @property
    def small(self) -> bool:
        return self.transfer < self.latency

    def joined(self, added: _Bucket) -> _Bucket:
        transfer = self.transfer + added.transfer
        return _Bucket([*self.ops, *added.ops], self.key, self.bytes + added.bytes, transfer, self.latency)


def _followers(trace: Trace, ops: Iterable[BoundSymbol], start: int, position: dict[int, int]) -> list[int] | None:
    """The positions before ``start`` of waits for these collectives, and of ops that read their results.

    None if one of these ops cannot move after ``start``.
    """
    found: set[int] = set()
    names = [proxy.name for op in ops for proxy in op.outputs()]
    while names:
        for op in trace.users(names.pop()):
            index = position[id(op)]
            if index > start or index in found:
                continue
            if not hands_on(op):
                return None
            found.add(index)
            names += [proxy.name for proxy in op.outputs()]
    return sorted(found)


def _replaced(ops: list[BoundSymbol], moved: dict[int, list[BoundSymbol]], gone: set[int]) -> Iterator[BoundSymbol]:
    for index, op in enumerate(ops):
        if index in moved:
            yield from moved[index]
        elif index not in gone:
            yield op
