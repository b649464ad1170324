"""How long ops compute, by a deterministic cost model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import torch

from thunder.report.operation_counts import count_operations
from thunder_core.ir.bound_symbol import BoundSymbol, tensors_of
from thunder_core.ir.storage_sizes import element_bytes
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace, bodies_of, programs_of
from thunder_plugin_distributed.hardware import Hardware


def compute_seconds(
    op: BoundSymbol, hardware: Hardware, derivatives: Mapping[str, Trace] = MappingProxyType({})
) -> float:
    """The time of an op: the sum over the ops of its programs and bodies.

    Args:
        derivatives: backward programs of graphs that autograd recorded, by their names.
    """
    return sum(_seconds(each, hardware) for each in _run_by(op, derivatives))


def _run_by(op: BoundSymbol, derivatives: Mapping[str, Trace]) -> Iterator[BoundSymbol]:
    """The ops that compute when ``op`` runs: those of its programs, or itself."""
    bodies = [*programs_of(op.symbol)[:1], *bodies_of(op)]
    bodies += [derivatives[proxy.name] for proxy in op.inputs() if proxy.name in derivatives]
    for body in bodies:
        for inner in body.symbols:
            yield from _run_by(inner, {})
    # A collective copies what it reads and returns, for example into a buffer for all parameters of a group.
    if not bodies and Tag.WAIT not in op.symbol.tags:
        yield op


def _seconds(op: BoundSymbol, hardware: Hardware) -> float:
    if op.is_view():
        return 0.0
    tensors = {proxy.name: proxy for proxy in tensors_of(op)}
    moved = sum(map(element_bytes, tensors.values()))
    dtype = next((proxy.dtype for proxy in tensors.values()), torch.float32)
    return hardware.compute_seconds(count_operations(op) or 0, moved, dtype)
