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
    before: ClassVar[tuple[str, ...]] = ("schedule_collectives",)

    hardware: str | Hardware = "h100"
    largest: int = 32 << 20

    def applies(self, context: TransformContext) -> bool:
        return torch.distributed.is_available() and torch.distributed.is_initialized()

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        inputs, hardware = gathers_of_inputs(trace), hardware_of(self.hardware)
        collectives = [line for line in trace.symbols if Tag.COLLECTIVE in line.symbol.tags]
        gathers = [line for line in collectives if id(line) in inputs]
        others = [line for line in collectives if id(line) not in inputs]
        position = {id(line): index for index, line in enumerate(trace.symbols)}
        lines = list(trace.symbols)
        buckets = [
            *self._buckets(gathers, trace, position, hardware),
            *self._buckets(others, trace, position, hardware),
        ]
        moved: dict[int, list[BoundSymbol]] = {}
        gone: set[int] = set()
        for bucket in buckets:
            indices = [position[id(line)] for line in bucket]
            start = indices[0] if is_parameter_gather(bucket[0]) else indices[-1]
            followers = _followers(trace, bucket[:-1], start, position) or []
            gone |= {*indices, *followers}
            moved[start] = [merged(bucket), *[lines[index] for index in followers]]
        if not moved:
            return trace
        context.notes.append(
            f"{self.name}: {sum(map(len, buckets))} collectives of the {context.phase.value} program are {len(buckets)}"
        )
        return trace.with_symbols(_replaced(lines, moved, gone), self.name)

    def _buckets(
        self, lines: Iterable[BoundSymbol], trace: Trace, position: dict[int, int], hardware: Hardware
    ) -> Iterator[list[BoundSymbol]]:
        """The ops that are merged, in order."""
        opened: _Bucket | None = None
        for line in lines:
            added = _Bucket.of(line, hardware)
            if opened is not None and added is not None and self._join(opened, added, trace, position):
                opened = opened.joined(added)
                continue
            if opened is not None and len(opened.lines) > 1:
                yield opened.lines
            opened = added
        if opened is not None and len(opened.lines) > 1:
            yield opened.lines

    def _join(self, opened: _Bucket, added: _Bucket, trace: Trace, position: dict[int, int]) -> bool:
        if opened.key != added.key or opened.bytes + added.bytes > self.largest:
            return False
        if is_parameter_gather(added.lines[0]):
            return opened.small or added.small
        return opened.small and _followers(trace, opened.lines, position[id(added.lines[0])], position) is not None


@dataclass(frozen=True)
class _Bucket:
    """Ops that are merged, with their costs."""

    lines: list[BoundSymbol]
    key: Any
    bytes: int
    transfer: float
    latency: float

    @staticmethod
    def of(line: BoundSymbol, hardware: Hardware) -> _Bucket | None:
        """None for a collective that is never merged."""
        if not is_parameter_gather(line) and not is_scatter(line):
            return None
        costs = transfer_seconds(line, hardware), latency_seconds(line, hardware)
        return _Bucket([line], merge_key(line), whole_bytes(line), *costs)

    @property
    def small(self) -> bool:
        return self.transfer < self.latency

    def joined(self, added: _Bucket) -> _Bucket:
        transfer = self.transfer + added.transfer
        return _Bucket([*self.lines, *added.lines], self.key, self.bytes + added.bytes, transfer, self.latency)


def _followers(trace: Trace, lines: Iterable[BoundSymbol], start: int, position: dict[int, int]) -> list[int] | None:
    """The positions before ``start`` of waits for these collectives, and of ops that read their results.

    None if one of these ops cannot move after ``start``.
    """
    found: set[int] = set()
    names = [proxy.name for line in lines for proxy in line.outputs()]
    while names:
        for line in trace.users(names.pop()):
            index = position[id(line)]
            if index > start or index in found:
                continue
            if not hands_on(line):
                return None
            found.add(index)
            names += [proxy.name for proxy in line.outputs()]
    return sorted(found)


def _replaced(lines: list[BoundSymbol], moved: dict[int, list[BoundSymbol]], gone: set[int]) -> Iterator[BoundSymbol]:
    for index, line in enumerate(lines):
        if index in moved:
            yield from moved[index]
        elif index not in gone:
            yield line
