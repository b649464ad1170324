"""Checkpoint regions: their ops are inlined into the trace, and their values marked for recomputation in backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from thunder_core.acquire.checkpoints import CHECKPOINT
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder, Inlining
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.checkpoint_bodies import functional_body


@dataclass(frozen=True, slots=True)
class Inlined:
    """A trace with the calls of checkpoint regions replaced by the ops of the regions.

    Attributes:
        trace: the trace.
        computed: names of values that are computed in a region.
        recomputed: names of those values that backward recomputes; results of a region may be saved instead.
    """

    trace: Trace
    computed: frozenset[str] = frozenset()
    recomputed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class InlineCheckpoints(Pass[Trace]):
    """Inlines checkpoint regions of a program without gradients, so that executors can claim their ops."""

    name: ClassVar[str] = "InlineCheckpoints"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return inline_checkpoints(trace).trace


def inline_checkpoints(trace: Trace) -> Inlined:
    """Replace the calls of checkpoint regions, including nested ones, by the ops of the regions.

    A region with a selective policy (``context_fn``), or that writes to tensors from outside of it, remains a call,
    which PyTorch differentiates at run time.
    """
    if not any(bound.symbol is CHECKPOINT for bound in trace.symbols):
        return Inlined(trace)
    builder = Builder.of(trace, bodies=False)
    symbols: list[BoundSymbol] = []
    computed: set[str] = set()
    recomputed: set[str] = set()
    for bound in trace.symbols:
        ops = list(_region(bound, trace, builder)) if bound.symbol is CHECKPOINT else []
        symbols += ops or [bound]
        inner = {proxy.name for op in ops for proxy in op.outputs()}
        computed |= inner
        recomputed |= inner - {proxy.name for proxy in bound.outputs()}
    if not computed:
        return Inlined(trace)
    nested = inline_checkpoints(trace.with_symbols(symbols, "checkpoint regions"))
    return Inlined(nested.trace, nested.computed | computed, nested.recomputed | recomputed)


def _region(bound: BoundSymbol, trace: Trace, builder: Builder) -> Iterator[BoundSymbol]:
    """The ops of one region; none if it must remain a call."""
    body = bound.args[0]
    computation = functional_body(bound)
    if computation is None:
        return
    pairs: list[tuple[Proxy, Proxy]] = list(zip(computation.inputs, bound.args[1:], strict=True))
    pairs += zip(computation.output, bound.outputs(), strict=True)
    inlining = Inlining(pairs, lambda proxy: builder.name(proxy.name), builder.new_storage)
    for op in computation.symbols:
        context = op.context or body.context
        yield replace(inlining.op(op), context=None if context == trace.context else context)
