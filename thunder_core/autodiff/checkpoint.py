"""Checkpoint regions: their lines join the trace, and are remembered as lines to compute again."""

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
    """A trace with the lines of checkpoint regions in place of the calls.

    Attributes:
        trace: the trace.
        made: names of values that were made in a region.
        recomputed: those of them that backward makes again; what a region returns may be saved.
    """

    trace: Trace
    made: frozenset[str] = frozenset()
    recomputed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class InlineCheckpoints(Pass[Trace]):
    """Checkpoint regions without gradients are their lines, which executors see as all others."""

    name: ClassVar[str] = "InlineCheckpoints"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return inline_checkpoints(trace).trace


def inline_checkpoints(trace: Trace) -> Inlined:
    """Put the lines of checkpoint regions, also of regions inside of regions, in place of the calls.

    A region stays a call, which PyTorch differentiates at run time, if it has a policy of its own (``context_fn``) or
    writes to tensors from outside.
    """
    if not any(bound.symbol is CHECKPOINT for bound in trace.symbols):
        return Inlined(trace)
    builder = Builder.of(trace, bodies=False)
    symbols: list[BoundSymbol] = []
    made: set[str] = set()
    recomputed: set[str] = set()
    for bound in trace.symbols:
        lines = list(_region(bound, trace, builder)) if bound.symbol is CHECKPOINT else []
        symbols += lines or [bound]
        inner = {proxy.name for line in lines for proxy in line.outputs()}
        made |= inner
        recomputed |= inner - {proxy.name for proxy in bound.outputs()}
    if not made:
        return Inlined(trace)
    nested = inline_checkpoints(trace.with_symbols(symbols, "checkpoint regions"))
    return Inlined(nested.trace, nested.made | made, nested.recomputed | recomputed)


def _region(bound: BoundSymbol, trace: Trace, builder: Builder) -> Iterator[BoundSymbol]:
    """The lines of one region; none if it must stay a call."""
    body = bound.args[0]
    computation = functional_body(bound)
    if computation is None:
        return
    pairs: list[tuple[Proxy, Proxy]] = list(zip(computation.inputs, bound.args[1:], strict=True))
    pairs += zip(computation.output, bound.outputs(), strict=True)
    inlining = Inlining(pairs, lambda proxy: builder.name(proxy.name), builder.new_storage)
    for line in computation.symbols:
        context = line.context or body.context
        yield replace(inlining.op(line), context=None if context == trace.context else context)
