"""Checkpoint regions: passes apply to their bodies, which then replace the calls of the regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder, Inlining
from thunder_core.ir.proxy import Proxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.functionalize import FromComputation, functional_form
from thunder_core.symbols.checkpointing import CHECKPOINT


@dataclass(frozen=True)
class FunctionalBodies(Pass[Trace]):
    """Functionalizes the bodies of checkpoint regions, so that `in_checkpoints` applies to them.

    A body stays unchanged if it writes to tensors from outside or returns one of its inputs, or if its region has a
    policy (``context_fn``), which remains a call.
    """

    name: ClassVar[str] = "FunctionalBodies"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return _with_functional_bodies(trace)


def _with_functional_bodies(trace: Trace) -> Trace:
    def functional(op: BoundSymbol) -> Trace:
        body = _functional_body(op)
        return op.args[0] if body is None else _with_functional_bodies(body)

    return with_changed_bodies(trace, functional)


def _functional_body(op: BoundSymbol) -> Trace | None:
    """The functionalized body of a checkpoint region, with the same inputs and outputs; None if there is none."""
    body: Trace = op.args[0]
    if "context_fn" in op.kwargs:
        return None
    if body.stage is Stage.FUNCTIONAL:
        return body
    functional = functional_form(body)
    outputs = [source.index for source in functional.results if isinstance(source, FromComputation)]
    if functional.epilogue is not None or len(set(outputs)) < len(body.output):
        return None
    computation = functional.computation
    return replace(computation, output=tuple([computation.output[index] for index in outputs]))


def in_checkpoints(trace: Trace, change: Callable[[Trace, Sequence[Proxy]], Trace]) -> Trace:
    """The trace with ``change`` applied to the functional bodies of its checkpoint regions; itself if none changes.

    Args:
        change: called with a body, and the values outside that are its inputs.
    """

    def changed(op: BoundSymbol) -> Trace:
        body: Trace = op.args[0]
        return change(body, op.args[1:]) if body.stage is Stage.FUNCTIONAL else body

    return with_changed_bodies(trace, changed)


def with_changed_bodies(trace: Trace, changed_body: Callable[[BoundSymbol], Trace]) -> Trace:
    """The trace with the bodies that ``changed_body`` returns for its checkpoint regions; itself if none changes."""

    def changed(op: BoundSymbol) -> BoundSymbol:
        if op.symbol is not CHECKPOINT:
            return op
        body, *free = op.args
        new = changed_body(op)
        return op if new is body else replace(op, args=(new, *free))

    ops = [changed(op) for op in trace.symbols]
    same = all(new is old for new, old in zip(ops, trace.symbols, strict=True))
    return trace if same else trace.with_symbols(ops, trace.provenance)


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
    computation = _functional_body(bound)
    if computation is None:
        return
    pairs: list[tuple[Proxy, Proxy]] = list(zip(computation.inputs, bound.args[1:], strict=True))
    pairs += zip(computation.output, bound.outputs(), strict=True)
    inlining = Inlining(pairs, lambda proxy: builder.name(proxy.name), builder.new_storage)
    for op in computation.symbols:
        context = op.context or body.context
        yield replace(inlining.op(op), context=None if context == trace.context else context)
